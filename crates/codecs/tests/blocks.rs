//! Compressed blocks: there and back, by us and by the libraries of others, whole and damaged.

#![allow(clippy::cast_possible_truncation, reason = "bytes are cut out of numbers")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use keirin_codecs::blocks::{Codec, DICTIONARY_BYTES_MAX, Decoder, Dictionary, Error, snappy_frames};
use keirin_race::Races;
use keirin_testkit::data;
use proptest::prelude::*;

const CODECS: [Codec; 6] =
    [Codec::None, Codec::Lz4, Codec::Lz4Hc(3), Codec::Lz4Hc(12), Codec::Snappy, Codec::Zstd(3)];

fn decoder(codec: Codec) -> Decoder {
    Decoder::new(codec, &Races::with_seed(1), "test", &[])
}

fn decompress(codec: Codec, input: &[u8], size: usize) -> Result<Vec<u8>, Error> {
    // What was there before must not be seen.
    let mut output = vec![0xA5; size];
    let outcome = decoder(codec).decompress(input, &mut output);
    if outcome.is_err() {
        assert!(output.iter().all(|byte| *byte == 0), "an error shows bytes");
    }
    outcome.map(|()| output)
}

/// Text that repeats itself near and far.
fn text(bytes: usize) -> Vec<u8> {
    let words =
        ["select ", "sum", "(", ")", " from ", "lineitem", " where ", "l_quantity", " < ", "24", ";\n"];
    let mut state = 7_usize;
    let mut text = Vec::new();
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.extend(words[(state >> 33) % words.len()].bytes());
    }
    text.truncate(bytes);
    text
}

#[test]
fn blocks_come_back_from_every_codec_in_batches_of_every_size() {
    for codec in CODECS {
        let texts: Vec<_> = [0, 1, 13, 100, 5_000, 70_000, 1, 300_000].map(text).into();
        let stored: Vec<_> = texts.iter().map(|text| codec.compress(text).expect("small")).collect();
        let decoder = Decoder::new(codec, &Races::with_seed(1), "test", &stored[5]);
        for count in 0..=texts.len() {
            let mut outputs: Vec<_> = texts[..count].iter().map(|text| vec![0xA5; text.len()]).collect();
            let blocks = stored.iter().zip(&mut outputs).map(|(input, output)| (&input[..], &mut output[..]));
            decoder.decompress_batch(blocks, |index, error| panic!("{codec:?} {index}: {error}"));
            assert_eq!(outputs, texts[..count], "{codec:?}");
        }
    }
}

#[test]
fn one_damaged_block_of_a_batch_leaves_the_others_whole() {
    for codec in CODECS {
        let text = text(20_000);
        let stored = codec.compress(&text).expect("small");
        let mut outputs = vec![vec![0xA5; text.len()]; 5];
        let blocks = outputs.iter_mut().enumerate().map(|(index, output)| {
            let cut = if index == 2 { stored.len() / 2 } else { stored.len() };
            (&stored[..cut], &mut output[..])
        });
        let mut damaged = Vec::new();
        decoder(codec).decompress_batch(blocks, |index, _| damaged.push(index));
        assert_eq!(damaged, [2], "{codec:?}");
        for (index, output) in outputs.iter().enumerate() {
            assert!(if index == 2 { output.iter().all(|byte| *byte == 0) } else { *output == text });
        }
    }
}

#[test]
fn damaged_blocks_are_refused_or_have_the_declared_length() {
    for codec in CODECS {
        let text = text(400);
        let stored = codec.compress(&text).expect("small");
        for cut in 0..stored.len() {
            assert!(decompress(codec, &stored[..cut], text.len()).is_err(), "{codec:?} {cut}");
        }
        for at in 0..stored.len() {
            for change in [0x01, 0x80, 0xFF] {
                let mut damaged = stored.clone();
                damaged[at] ^= change;
                if let Ok(output) = decompress(codec, &damaged, text.len()) {
                    assert_eq!(output.len(), text.len());
                }
            }
        }
        assert!(decompress(codec, &stored, text.len() + 1).is_err(), "{codec:?}");
        assert!(decompress(codec, &stored, text.len() - 1).is_err(), "{codec:?}");
    }
}

#[test]
fn what_liblz4_decodes_too_is_the_same() {
    let text = text(300);
    let stored = Codec::Lz4.compress(&text).expect("small");
    let size = i32::try_from(text.len()).expect("small");
    for at in 0..stored.len() {
        for change in [0x01, 0x08, 0x40, 0xF0] {
            let mut damaged = stored.clone();
            damaged[at] ^= change;
            let ours = decompress(Codec::Lz4, &damaged, text.len());
            let theirs = lz4::block::decompress(&damaged, Some(size));
            if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
                assert_eq!(ours, theirs, "byte {at} changed by {change}");
            }
        }
    }
}

/// All files below a folder.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a readable folder");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn malformed_corpora_are_decoded_to_the_declared_length_or_refused() {
    let Some(pack) = data::pack("malformed_codec") else { return };
    let frames = decoder(Codec::Snappy);
    for path in files(&pack) {
        let bytes = fs::read(&path).expect("a readable file");
        let bytes = &bytes[..bytes.len().min(300_000)];
        for size in [0, 1, 100, 65_536, 1 << 20] {
            for codec in [Codec::Lz4, Codec::Snappy, Codec::Zstd(1)] {
                if let Ok(output) = decompress(codec, bytes, size) {
                    assert_eq!(output.len(), size);
                }
            }
        }
        if let Ok(output) = snappy_frames::decompress(&frames, bytes, 1 << 20) {
            assert!(output.len() <= 1 << 20);
        }
        for codec in CODECS {
            let stored = codec.compress(bytes).expect("small");
            let whole = decompress(codec, &stored, bytes.len()).expect("our own block");
            assert!(whole == bytes, "{codec:?} {}", path.display());
        }
    }
}

#[test]
fn bad_data_of_google_is_refused() {
    let Some(pack) = data::pack("corpora") else { return };
    for number in 1..=3 {
        let path = pack.join(format!("corpora/snappy_testdata/baddata{number}.snappy"));
        let bytes = fs::read(path).expect("the pack has this file");
        let size = keirin_kernels::snappy::decoded_len(&bytes).map_or(0, |(size, _)| size as usize);
        assert!(decompress(Codec::Snappy, &bytes, size.min(1 << 24)).is_err());
    }
}

#[test]
fn snappy_streams_are_those_that_others_read_and_write() {
    let decoder = decoder(Codec::Snappy);
    let noise: Vec<u8> = (0..70_000_u64).map(|index| (index.wrapping_mul(index) >> 7) as u8).collect();
    for bytes in [text(0), text(1), text(65_536), text(300_000), noise, [text(70_000), vec![0; 9]].concat()] {
        let ours = snappy_frames::compress(&bytes).expect("small");
        let mut theirs = Vec::new();
        snap::read::FrameDecoder::new(&ours[..]).read_to_end(&mut theirs).expect("a stream");
        assert!(theirs == bytes);
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(&bytes).expect("memory");
        let stream = encoder.into_inner().expect("memory");
        for stream in [&ours, &stream] {
            let back = snappy_frames::decompress(&decoder, stream, bytes.len()).expect("a stream");
            assert!(back == bytes);
        }
    }
}

#[test]
fn damaged_snappy_streams_are_refused_with_the_place() {
    let decoder = decoder(Codec::Snappy);
    let bytes = text(400);
    let stream = snappy_frames::compress(&bytes).expect("small");
    let check = |change: &dyn Fn(&mut Vec<u8>), limit, expected: &str| {
        let mut damaged = stream.clone();
        change(&mut damaged);
        let error = snappy_frames::decompress(&decoder, &damaged, limit).expect_err("damaged").to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&|stream| stream[0] = 0, 400, "the chunk at byte 0: it does not begin a stream");
    check(&|stream| stream[14] ^= 1, 400, "the chunk at byte 10: its checksum is another");
    check(&|stream| stream[10] = 2, 400, "its kind is unknown");
    check(&|stream| stream[11] ^= 1, 400, "the chunk at byte");
    check(&|stream| stream.truncate(12), 400, "it ends in its length");
    check(&|stream| stream.truncate(30), 400, "it ends too early");
    check(&|_| {}, 399, "declare 400 bytes; at most 399 are allowed");
    check(&|stream| stream[24] ^= 0x7C, 400, "the chunk at byte 10");
    for at in 0..stream.len() {
        let mut damaged = stream.clone();
        damaged[at] ^= 0xFF;
        if let Ok(output) = snappy_frames::decompress(&decoder, &damaged, 1_000) {
            assert!(output.is_empty() || output == bytes, "byte {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_bytes_come_back(
        blocks in prop::collection::vec(prop::collection::vec(prop_oneof![4 => 0..4_u8, 1 => any::<u8>()], 0..3_000), 0..5),
    ) {
        for codec in CODECS {
            let stored: Vec<_> = blocks.iter().map(|block| codec.compress(block).expect("small")).collect();
            let mut outputs: Vec<_> = blocks.iter().map(|block| vec![0xA5; block.len()]).collect();
            let batch = stored.iter().zip(&mut outputs).map(|(input, output)| (&input[..], &mut output[..]));
            let mut errors = 0;
            decoder(codec).decompress_batch(batch, |_, _| errors += 1);
            prop_assert_eq!(errors, 0);
            prop_assert_eq!(&outputs, &blocks);
        }
    }

    #[test]
    fn blocks_of_other_encoders_and_decoders_are_the_same(
        block in prop::collection::vec(prop_oneof![4 => 0..4_u8, 1 => any::<u8>()], 0..5_000),
    ) {
        let theirs = lz4_flex::block::compress(&block);
        prop_assert!(decompress(Codec::Lz4, &theirs, block.len()).expect("their block") == block);
        for codec in [Codec::Lz4, Codec::Lz4Hc(9)] {
            let ours = codec.compress(&block).expect("small");
            prop_assert!(lz4_flex::block::decompress(&ours, block.len()).expect("our block") == block);
        }
        let ours = Codec::Snappy.compress(&block).expect("small");
        prop_assert_eq!(snap::raw::Decoder::new().decompress_vec(&ours).expect("our block"), block);
    }
}

/// Small records that are alike.
fn records() -> Vec<Vec<u8>> {
    let record = |number: usize| {
        let (user, page) = (number * 7919 % 1000, number * 104_729 % 50);
        format!(
            "{{\"user\": {user}, \"event\": \"click\", \"page\": \"/shop/item/{page}\", \"referer\": null}}"
        )
    };
    (0..2000).map(|number| record(number).into_bytes()).collect()
}

#[test]
fn a_dictionary_makes_small_blocks_smaller_and_gives_them_back() {
    let records = records();
    let samples: Vec<&[u8]> = records[..1500].iter().map(Vec::as_slice).collect();
    let trained = Dictionary::train(&samples, 4 << 10, 3).expect("records are alike");
    let dictionary = Dictionary::new(trained.bytes().to_vec(), 19).expect("it was trained");
    let (mut with, mut without) = (0, 0);
    for record in &records[1500..] {
        let stored = dictionary.compress(record).expect("small");
        let mut output = vec![0xA5; record.len()];
        trained.decompress(&stored, &mut output).expect("it was compressed");
        assert_eq!(&output, record);
        with += stored.len();
        without += Codec::Zstd(19).compress(record).expect("small").len();
        // Without the dictionary it is no block.
        assert!(decompress(Codec::Zstd(3), &stored, record.len()).is_err());
    }
    assert!(with * 2 < without, "{with} bytes with a dictionary, {without} without");
    let raw = Dictionary::new(records[0].clone(), 3).expect("any bytes are a dictionary");
    let stored = raw.compress(&records[1]).expect("small");
    let mut library = zstd::bulk::Decompressor::with_dictionary(&records[0]).expect("any bytes");
    assert_eq!(library.decompress(&stored, 1000).expect("the library reads it"), records[1]);
}

#[test]
fn damage_with_a_dictionary_is_an_error_or_gives_the_declared_length() {
    let records = records();
    let samples: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    let dictionary = Dictionary::train(&samples, 2 << 10, 3).expect("records are alike");
    let stored = dictionary.compress(&records[7]).expect("small");
    let mut output = vec![0xA5; records[7].len()];
    for bit in 0..stored.len() * 8 {
        let mut damaged = stored.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        output.fill(0xA5);
        if dictionary.decompress(&damaged, &mut output).is_err() {
            assert!(output.iter().all(|byte| *byte == 0), "an error shows bytes");
        }
    }
    for end in 0..stored.len() {
        assert!(dictionary.decompress(&stored[..end], &mut output).is_err(), "{end} bytes");
    }
    for size in [0, output.len() - 1, output.len() + 1] {
        assert!(dictionary.decompress(&stored, &mut vec![0; size]).is_err(), "{size} bytes");
    }
    let mut damaged = dictionary.bytes().to_vec();
    damaged.truncate(40);
    assert!(Dictionary::new(damaged, 3).is_err());
    assert!(Dictionary::new(vec![0; DICTIONARY_BYTES_MAX + 1], 3).is_err());
    assert!(Dictionary::train(&[b"one"], 1000, 3).is_err());
}
