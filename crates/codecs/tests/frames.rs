//! Frames keep their values, refuse every changed byte, and stay readable for ever.

#![allow(clippy::cast_possible_truncation, reason = "test data is cut to size on purpose")]

use std::fs;
use std::path::{Path, PathBuf};

use keirin_codecs::blocks::{Codec, Decoder};
use keirin_codecs::frame::{self, Compression, Frame, Kind, Limits, Maker};
use keirin_codecs::strings::Buffer;
use keirin_codecs::{Choice, Clock, Error, Goal, Plan, flags, floats, integers, strings};
use keirin_kernels::{BitBuffer, Level};
use keirin_race::Races;
use keirin_testkit::columns::Random;

const LIMITS: Limits = Limits { rows: 1 << 20, bytes: 1 << 30 };

fn numbers() -> Vec<i64> {
    (0..100).map(|row| 1_000 + row * row).collect()
}

#[test]
fn frames_keep_what_they_got() {
    let level = Level::best();
    let frame = frame::of_integers(level, Goal::Balanced, &numbers()).expect("few values");
    let opened = Frame::open(&frame, LIMITS).expect("what was written");
    assert_eq!(opened.byte_count(), frame.len());
    assert_eq!(opened.value_bytes(), 800);
    let column = opened.integers::<i64>(level).expect("what was written");
    assert_eq!(column.decode(level), Ok(numbers()));
    let wrong = opened.integers::<u64>(level).err();
    assert_eq!(wrong, Some(Error::Kind { wanted: Kind::U64, found: Kind::I64 }));

    let values = [1.5_f32, -0.0, f32::NAN];
    let frame = frame::of_floats(level, Goal::Balanced, &values).expect("few values");
    let opened = Frame::open(&frame, LIMITS).expect("what was written");
    let decoded = opened.floats::<f32>(level).and_then(|column| column.decode(level)).expect("floats");
    assert_eq!(decoded.map_to_bits(), values.to_vec().map_to_bits());

    let bits: BitBuffer = (0..99).map(|row| row % 7 == 0).collect();
    let frame = frame::of_flags(level, Goal::Balanced, bits.as_bits()).expect("few flags");
    let opened = Frame::open(&frame, LIMITS).expect("what was written");
    assert_eq!(opened.flags(level).expect("flags").decode(), bits);

    let text: Buffer = [&b"one"[..], b"", b"three"].into_iter().collect();
    let frame = frame::of_strings(level, Goal::Balanced, text.rows(level)).expect("few rows");
    let opened = Frame::open(&frame, LIMITS).expect("what was written");
    assert_eq!(opened.value_bytes(), 8);
    assert_eq!(opened.strings(level).and_then(|column| column.decode(level)), Ok(text));
}

#[test]
fn a_compressed_frame_is_read_when_it_was_decompressed() {
    let level = Level::best();
    let encoded = integers::encode_as(level, Goal::Fastest, integers::Encoding::Raw, &numbers());
    let encoded = encoded.expect("few values").expect("any values");
    for codec in [Codec::Lz4, Codec::Lz4Hc(9), Codec::Snappy, Codec::Zstd(3)] {
        let block = codec.compress(&encoded).expect("a small block");
        let frame =
            frame::write(Kind::I64, codec.into(), 100, 800, encoded.len(), &block).expect("few bytes");
        let opened = Frame::open(&frame, LIMITS).expect("what was written");
        let early = opened.integers::<i64>(level).err();
        assert_eq!(early, Some(Error::Compressed { compression: codec.into() }));
        let mut decompressed = vec![0; opened.encoded_bytes()];
        let decoder = Decoder::new(codec, &Races::default(), "numbers", opened.stored());
        decoder.decompress(opened.stored(), &mut decompressed).expect("what was compressed");
        let column = opened.decompressed(&decompressed);
        let column = column.integers::<i64>(level).expect("what was encoded");
        assert_eq!(column.decode(level), Ok(numbers()), "{codec:?}");
    }
}

/// Chosen as on every machine, however busy it is.
fn modelled(goal: Goal) -> Choice {
    Choice { goal, clock: Clock::Modelled, may_compress: true }
}

#[test]
fn a_frame_is_compressed_where_that_pays_and_says_so() {
    let level = Level::best();
    let check = |goal: Goal, row: &dyn Fn(usize) -> String, compression, made_of: &str| {
        let rows: Vec<String> = (0..5000).map(row).collect();
        let text: Buffer = rows.iter().map(String::as_bytes).collect();
        let frame = frame::of_strings(level, modelled(goal), text.rows(level)).expect("few rows");
        let opened = Frame::open(&frame, LIMITS).expect("what was written");
        assert_eq!(opened.compression(), compression, "{goal:?} {}", opened.explain(level).expect("text"));
        let explained = opened.explain(level).expect("what was written");
        assert!(explained.starts_with(made_of) && explained.ends_with(" GB/s"), "{explained}");
        let mut buffer = vec![1; 99];
        let decoder = Decoder::new(compression.into(), &Races::default(), "rows", opened.stored());
        let plain = opened.decompress(&decoder, &mut buffer).expect("what was written");
        assert_eq!(plain.strings(level).and_then(|column| column.decode(level)), Ok(text));
    };
    let page = |row: usize| format!("https://example.com/{:x}/the/same/again/and/again", row * row * 7919);
    check(Goal::Smallest, &page, Compression::Zstd, "");
    check(Goal::Fastest, &page, Compression::None, "raw: ");
    check(
        Goal::Balanced,
        &|row| format!("ship mode {}", Random::new(row as u64).below(8)),
        Compression::None,
        "dict(8) + bitpack(3): ",
    );
}

#[test]
fn damage_in_compressed_bytes_is_an_error() {
    let level = Level::best();
    let block = Codec::Zstd(3).compress(&[7; 1000]).expect("a small block");
    let frame = frame::write(Kind::U8, Compression::Zstd, 999, 999, 999, &block).expect("few bytes");
    let opened = Frame::open(&frame, LIMITS).expect("a good checksum");
    let decoder = Decoder::new(Codec::Zstd(3), &Races::default(), "bytes", opened.stored());
    let found = opened.decompress(&decoder, &mut Vec::new()).err();
    assert!(matches!(found, Some(Error::Damaged { .. })), "{found:?}");
    assert!(matches!(opened.explain(level), Err(Error::Damaged { .. })));
}

trait MapToBits {
    fn map_to_bits(&self) -> Vec<u32>;
}

impl MapToBits for Vec<f32> {
    fn map_to_bits(&self) -> Vec<u32> {
        self.iter().map(|value| value.to_bits()).collect()
    }
}

#[test]
fn every_changed_or_missing_byte_is_found() {
    let frame = frame::of_integers(Level::best(), Goal::Balanced, &numbers()).expect("few values");
    for length in 0..frame.len() {
        let opened = Frame::open(&frame[..length], LIMITS);
        assert!(matches!(opened, Err(Error::Truncated { .. })), "cut to {length} bytes");
    }
    for place in 0..frame.len() {
        for change in 1..=255 {
            let mut changed = frame.clone();
            changed[place] ^= change;
            assert!(Frame::open(&changed, LIMITS).is_err(), "byte {place} changed by {change}");
        }
    }
}

#[test]
fn limits_are_looked_at_before_anything_else() {
    let check = |rows: u32, bytes: u64, expected: Error| {
        let frame = frame::of_integers(Level::best(), Goal::Balanced, &numbers()).expect("few values");
        assert_eq!(Frame::open(&frame, Limits { rows, bytes }).err(), Some(expected));
    };
    check(99, 1 << 20, Error::Limit { needed: 100, limit: 99 });
    check(100, 799, Error::Limit { needed: 800, limit: 799 });
}

#[test]
fn a_frame_that_lies_about_its_size_is_refused() {
    let encoded = integers::encode(Level::best(), Goal::Balanced, &numbers()).expect("few values");
    let frame =
        frame::write(Kind::I64, Compression::None, 101, 800, encoded.len(), &encoded).expect("few bytes");
    assert!(matches!(Frame::open(&frame, LIMITS), Err(Error::Corrupt { at: 15, .. })));
    let frame = frame::write(Kind::I64, Compression::None, 100, 800, 5, &encoded).expect("few bytes");
    assert!(matches!(Frame::open(&frame, LIMITS), Err(Error::Corrupt { at: 7, .. })));
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.frame"))
}

/// The frame of that name in the repository. With `KEIRIN_WRITE_GOLDEN` set, one that is not there is written:
/// for a new encoding, never for an old one.
fn stored(name: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = golden(name);
    if !path.exists() && std::env::var_os("KEIRIN_WRITE_GOLDEN").is_some() {
        fs::write(&path, make()).expect("golden files can be written");
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn of_encoded(kind: Kind, rows: usize, value_bytes: usize, encoded: Option<Vec<u8>>) -> Vec<u8> {
    let encoded = encoded.expect("an encoding that can hold the values");
    frame::write(kind, Compression::None, rows, value_bytes as u64, encoded.len(), &encoded)
        .expect("few bytes")
}

#[test]
fn golden_integers_are_read_for_ever() {
    use integers::Encoding;
    let level = Level::best();
    let check = |name: &str, encoding, values: Vec<i64>, explained: &str| {
        let frame = stored(name, || {
            let encoded = integers::encode_as(level, Goal::Balanced, encoding, &values).expect("few values");
            of_encoded(Kind::I64, values.len(), values.len() * 8, encoded)
        });
        let column = Frame::open(&frame, LIMITS).and_then(|frame| frame.integers::<i64>(level)).expect(name);
        assert_eq!(column.explain(), explained, "{name}");
        assert_eq!(column.decode(level), Ok(values), "{name}");
    };
    let many = |value: &dyn Fn(i64) -> i64| (0..1500).map(value).collect::<Vec<_>>();
    check("integers-raw", Encoding::Raw, vec![i64::MIN, -1, 0, 1, i64::MAX], "raw");
    check("integers-constant", Encoding::Constant, vec![-7; 1500], "constant");
    let patched = many(&|row| if row % 100 == 99 { row << 40 } else { 5 + row % 3 });
    check("integers-bitpack", Encoding::Bitpack, patched, "bitpack(2, 15 patches)");
    check("integers-delta", Encoding::Delta, many(&|row| row * 10 - row % 2), "delta + bitpack(2)");
    check("integers-runs", Encoding::Runs, many(&|row| row / 100 * 1_000_000), "runs(15)");
    let few = many(&|row| [i64::MIN, -3, 1 << 50][(row * row % 3) as usize]);
    check("integers-dict", Encoding::Dict, few, "dict(2) + bitpack(1)");
}

#[test]
fn golden_wide_integers_are_read_for_ever() {
    let level = Level::best();
    let values: Vec<i128> = (0..300).map(|row| (1 << 90) + row * 12_345).collect();
    let frame =
        stored("integers-128", || frame::of_integers(level, Goal::Balanced, &values).expect("few values"));
    let column = Frame::open(&frame, LIMITS).and_then(|frame| frame.integers::<i128>(level)).expect("i128");
    assert_eq!(column.decode(level), Ok(values));
}

#[test]
fn golden_floats_are_read_for_ever() {
    use floats::Encoding;
    let level = Level::best();
    let check = |name: &str, encoding, values: Vec<f64>, explained: &str| {
        let frame = stored(name, || {
            let encoded = floats::encode_as(level, Goal::Balanced, encoding, &values).expect("few values");
            of_encoded(Kind::F64, values.len(), values.len() * 8, encoded)
        });
        let column = Frame::open(&frame, LIMITS).and_then(|frame| frame.floats::<f64>(level)).expect(name);
        assert_eq!(column.explain(), explained, "{name}");
        let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(column.decode(level).map(bits), Ok(bits(values)), "{name}");
    };
    check("floats-bits", Encoding::Bits, vec![0.1, -0.0, f64::NAN, f64::INFINITY, 5e-324], "raw");
    let prices = (0..300).map(|row| if row == 77 { f64::NAN } else { f64::from(row * 7 % 100) / 100.0 });
    check("floats-alp", Encoding::Alp, prices.collect(), "alp(14, 12, 1 exception) + bitpack(7)");
    let places = (1..100).map(|row| 50.0 + 1.0 / f64::from(row));
    check("floats-raw", Encoding::Raw, vec![0.1, -0.0, f64::NAN, f64::INFINITY, 5e-324], "raw");
    check("floats-split", Encoding::Split, places.collect(), "split(constant + 48)");
}

#[test]
fn golden_flags_are_read_for_ever() {
    use flags::Encoding;
    let level = Level::best();
    let check = |name: &str, encoding, is_set: &dyn Fn(usize) -> bool| {
        let bits: BitBuffer = (0..500).map(is_set).collect();
        let frame = stored(name, || {
            let encoded =
                flags::encode_as(level, Goal::Balanced, encoding, bits.as_bits()).expect("few flags");
            of_encoded(Kind::Flags, 500, 63, encoded)
        });
        let column = Frame::open(&frame, LIMITS).and_then(|frame| frame.flags(level)).expect(name);
        assert_eq!(column.decode(), bits, "{name}");
    };
    check("flags-raw", Encoding::Raw, &|row| row % 3 == 0);
    check("flags-constant", Encoding::Constant, &|_| true);
    check("flags-runs", Encoding::Runs, &|row| row / 90 % 2 == 0);
}

#[test]
fn golden_strings_are_read_for_ever() {
    use strings::Encoding;
    let level = Level::best();
    let check = |name: &str, encoding, row: &dyn Fn(usize) -> String| {
        let rows: Vec<String> = (0..150).map(row).collect();
        let text: Buffer = rows.iter().map(String::as_bytes).collect();
        let frame = stored(name, || {
            let rows = text.rows(level);
            let encoded = strings::encode_as(level, Goal::Balanced, encoding, rows).expect("few rows");
            of_encoded(Kind::Text, 150, text.bytes.len(), encoded)
        });
        let column = Frame::open(&frame, LIMITS).and_then(|frame| frame.strings(level)).expect(name);
        assert_eq!(column.decode(level), Ok(text), "{name}");
    };
    check("strings-raw", Encoding::Raw, &|row| "x".repeat(row % 5));
    check("strings-constant", Encoding::Constant, &|_| "same".to_owned());
    check("strings-dict", Encoding::Dict, &|row| format!("entry {}", row % 4));
    check("strings-fsst", Encoding::Fsst, &|row| format!("https://example.com/p{}é\u{1}", row * 37 % 1000));
}

/// Blocks of a column that changes its nature, one after the other by one plan.
#[test]
fn frames_made_by_a_plan_come_back_whatever_comes_next() {
    let level = Level::best();
    let mut random = 1_u64;
    let mut next = move || {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        random >> 33
    };
    for goal in Goal::ALL {
        let (mut numbers, mut floats, mut texts) = (Plan::default(), Plan::default(), Plan::default());
        for block in 0..24 {
            let mut value = |row: u64| match block % 8 {
                0 | 1 => next() % 100,
                2 => 7,
                3 => row * 1000 + next() % 3,
                4 => [1, 1 << 40, 1 << 60][(next() % 3) as usize],
                5 => row / 500,
                6 => next() << 31 ^ next(),
                _ if row.is_multiple_of(200) => next() << 20,
                _ => 3,
            };
            let values: Vec<u64> = (0..3000).map(&mut value).collect();
            let frame =
                Maker::new(level, modelled(goal), &mut numbers).integers(&values).expect("few values");
            let mut buffer = Vec::new();
            let decompressed = |frame: &[u8], buffer: &mut Vec<u8>| {
                let frame = Frame::open(frame, LIMITS).expect("a good checksum");
                let codec = Codec::from(frame.compression());
                let decoder = Decoder::new(codec, &Races::default(), "t", frame.stored());
                frame.decompress(&decoder, buffer).map(|frame| frame.stored().to_vec()).expect("whole")
            };
            let encoded = decompressed(&frame, &mut buffer);
            let column = integers::Column::<u64>::open(level, &encoded, values.len()).expect("whole");
            assert_eq!(column.decode(level).as_ref(), Ok(&values), "{goal:?}, block {block}");

            let decimals: Vec<f64> = values.iter().map(|value| *value as f64 / 100.0).collect();
            let frame = Maker::new(level, modelled(goal), &mut floats).floats(&decimals).expect("few values");
            let encoded = decompressed(&frame, &mut buffer);
            let column = floats::Column::<f64>::open(level, &encoded, values.len()).expect("whole");
            assert_eq!(column.decode(level).as_ref(), Ok(&decimals), "{goal:?}, block {block}");

            let text: Vec<String> =
                values.iter().map(|value| format!("https://example.com/{value}")).collect();
            let text: Buffer = text.iter().map(String::as_bytes).collect();
            let frame =
                Maker::new(level, modelled(goal), &mut texts).strings(text.rows(level)).expect("few rows");
            let encoded = decompressed(&frame, &mut buffer);
            let column = strings::Column::open(level, &encoded, values.len(), 1 << 20).expect("whole");
            assert_eq!(column.decode(level).as_ref(), Ok(&text), "{goal:?}, block {block}");
        }
    }
}

#[test]
fn text_that_changes_is_as_small_as_if_it_came_first() {
    let level = Level::best();
    let text = |words: &[&str; 8], seed: u64| {
        let mut random = Random::new(seed);
        let rows = (0..5000).map(|_| {
            let mut row: Vec<&str> = (0..6).map(|_| words[random.below(8) as usize]).collect();
            let number = random.below(1 << 20).to_string();
            row.push(&number);
            row.join(" ")
        });
        let rows: Vec<String> = rows.collect();
        rows.iter().map(String::as_bytes).collect::<Buffer>()
    };
    let english = ["carefully", "final", "deposits", "sleep", "quickly", "above", "the", "ironic"];
    let german = ["STRASSE", "WALD", "BRUECKE", "FLUSS", "DORF", "GARTEN", "HIMMEL", "WOLKE"];
    let mut plan = Plan::default();
    for (block, words) in [english, german, german, english].iter().enumerate() {
        let text = text(words, block as u64);
        let choice = modelled(Goal::Balanced);
        let planned = Maker::new(level, choice, &mut plan).strings(text.rows(level)).expect("few rows");
        let alone = frame::of_strings(level, choice, text.rows(level)).expect("few rows");
        assert!(planned.len() * 10 <= alone.len() * 11, "{}, not {}", planned.len(), alone.len());
    }
}
