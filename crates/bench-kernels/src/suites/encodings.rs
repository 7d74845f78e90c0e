//! Encodings of columns: how small, and how fast decoded; each that holds the values, and what is chosen.
//!
//! A column is one block, as it is stored: 65,536 rows, FSST's columns of text cut to a few megabytes, and
//! ALP's samples of 1,024 floats as they are. GB/s count the bytes of the values. `keirin` is the balanced
//! choice; the limit is `memcpy` of the values.

use keirin_codecs::strings::Buffer;
use keirin_codecs::{Goal, floats, integers, strings};
use keirin_kernels::Level;
use keirin_kernels::text::Text;
use keirin_testkit::columns::{Keys, Random};
use keirin_testkit::data;

use crate::duel::{Lane, Report, Unit};

pub(super) const ROWS: usize = 1 << 16;
const TEXT_BYTES: usize = 4 << 20;

/// Adds the cases.
pub(super) fn run(report: &mut Report) {
    super::columns::run(report);
    for (case, values) in columns_of_integers() {
        of_integers(report, &format!("i64 {case}"), &values);
    }
    if let Some(pack) = data::pack("columns") {
        let folder = pack.join("columns/alp/samples");
        for path in files(&folder) {
            let text = std::fs::read_to_string(&path).expect("a column can be read");
            let values: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
            of_floats(report, &format!("f64 {}", name(&path)), &values);
        }
    }
    if let Some(pack) = data::pack("corpora") {
        for path in files(&pack.join("corpora/fsst_dbtext")) {
            let text = std::fs::read(&path).expect("a column can be read");
            let text = &text[..text.len().min(TEXT_BYTES)];
            let rows: Buffer = text.split(|byte| *byte == b'\n').take(ROWS).collect();
            of_strings(report, &format!("text {}", name(&path)), &rows);
        }
    }
}

fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder of a pack");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file of a pack").path()).collect();
    files.sort();
    files
}

fn name(path: &std::path::Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn columns_of_integers() -> Vec<(&'static str, Vec<i64>)> {
    let mut random = Random::new(1);
    let keys = |keys: Keys| keys.rows(ROWS, 1).into_iter().map(u64::cast_signed).collect::<Vec<i64>>();
    let ids: Vec<i64> = (0..500).map(|_| random.bits().cast_signed()).collect();
    let mut time = 1_600_000_000_000;
    let mut times = Vec::new();
    for _ in 0..ROWS {
        time += random.below(2000).cast_signed() - 200;
        times.push(time);
    }
    let outliers = (0..ROWS).map(|_| if random.chance(0.01) { random.bits() } else { random.below(1000) });
    let outliers = outliers.map(u64::cast_signed).collect();
    let few = (0..ROWS).map(|_| ids[usize::try_from(random.below(500)).expect("a small number")]).collect();
    vec![
        ("below 100", keys(Keys::Uniform(100))),
        ("runs of 20", keys(Keys::Runs(20))),
        ("runs of 3", keys(Keys::Runs(3))),
        ("zipf", keys(Keys::Zipf(10_000))),
        ("keys", (0_i64..).take(ROWS).collect()),
        ("times", times),
        ("1 % outliers", outliers),
        ("500 ids", few),
        ("random", (0..ROWS).map(|_| random.bits().cast_signed()).collect()),
    ]
}

/// Encoded bytes of one way, and how it decodes.
type Way<'a> = (String, Vec<u8>, String, Box<dyn Fn(&[u8]) -> Box<dyn FnMut() -> u64 + 'a> + 'a>);

/// Sizes, then times of all ways and of `memcpy`.
fn ways(report: &mut Report, case: &str, size: usize, ways: &[Way<'_>], copy: Lane<'_>) {
    let mut lanes = Vec::new();
    for (engine, bytes, explained, decode) in ways {
        report.size(case, engine, bytes.len(), size, explained);
        lanes.push(Lane::new(engine, decode(bytes)));
    }
    lanes.push(copy);
    report.case(case, Unit::Bytes, size, lanes);
}

fn of_integers(report: &mut Report, case: &str, values: &[i64]) {
    if !report.wants(case) {
        return;
    }
    let level = Level::best();
    let decode = |bytes: &[u8]| -> Box<dyn FnMut() -> u64> {
        let (bytes, mut out) = (bytes.to_vec(), vec![0_i64; values.len()]);
        let count = values.len();
        Box::new(move || {
            let column = integers::Column::<i64>::open(level, &bytes, count).expect("what was written");
            column.decode_into(level, 0, &mut out).expect("what was written");
            ends(out.iter().map(|value| value.cast_unsigned()))
        })
    };
    let explain = |bytes: &[u8]| {
        integers::Column::<i64>::open(level, bytes, values.len()).expect("what was written").explain()
    };
    let mut all: Vec<Way<'_>> = Vec::new();
    for (engine, goal) in GOALS {
        let bytes = integers::encode(level, goal, values).expect("few rows");
        all.push((engine.to_owned(), bytes.clone(), explain(&bytes), Box::new(decode)));
    }
    for encoding in integers::Encoding::ALL {
        if let Some(bytes) = integers::encode_as(level, Goal::Balanced, encoding, values).expect("few rows") {
            let engine = format!("keirin:{encoding:?}").to_lowercase();
            all.push((engine, bytes.clone(), explain(&bytes), Box::new(decode)));
        }
    }
    let mut out = vec![0; values.len()];
    let copy = Lane::new("memcpy", move || {
        out.copy_from_slice(values);
        ends(out.iter().map(|value| value.cast_unsigned()))
    });
    ways(report, case, size_of_val(values), &all, copy);
}

fn of_floats(report: &mut Report, case: &str, values: &[f64]) {
    if !report.wants(case) {
        return;
    }
    let level = Level::best();
    let decode = |bytes: &[u8]| -> Box<dyn FnMut() -> u64> {
        let (bytes, mut out) = (bytes.to_vec(), vec![0_f64; values.len()]);
        let count = values.len();
        Box::new(move || {
            let column = floats::Column::<f64>::open(level, &bytes, count).expect("what was written");
            column.decode_into(level, 0, &mut out).expect("what was written");
            ends(out.iter().map(|value| value.to_bits()))
        })
    };
    let explain = |bytes: &[u8]| {
        floats::Column::<f64>::open(level, bytes, values.len()).expect("what was written").explain()
    };
    let mut all: Vec<Way<'_>> = Vec::new();
    for (engine, goal) in GOALS {
        let bytes = floats::encode(level, goal, values).expect("few rows");
        all.push((engine.to_owned(), bytes.clone(), explain(&bytes), Box::new(decode)));
    }
    for encoding in floats::Encoding::ALL {
        if let Some(bytes) = floats::encode_as(level, Goal::Balanced, encoding, values).expect("few rows") {
            let engine = format!("keirin:{encoding:?}").to_lowercase();
            all.push((engine, bytes.clone(), explain(&bytes), Box::new(decode)));
        }
    }
    let mut out = vec![0.0; values.len()];
    let copy = Lane::new("memcpy", move || {
        out.copy_from_slice(values);
        ends(out.iter().map(|value: &f64| value.to_bits()))
    });
    ways(report, case, size_of_val(values), &all, copy);
}

fn of_strings(report: &mut Report, case: &str, text: &Buffer) {
    if !report.wants(case) {
        return;
    }
    let level = Level::best();
    let rows = text.rows(level);
    let count = rows.row_count();
    let decode = |bytes: &[u8]| -> Box<dyn FnMut() -> u64> {
        let (bytes, mut text) = (bytes.to_vec(), Buffer { offsets: Vec::new(), bytes: Vec::new() });
        Box::new(move || {
            let column = strings::Column::open(level, &bytes, count, 1 << 30).expect("what was written");
            column.decode_into(level, 0..count, &mut text).expect("what was written");
            ends(text.bytes.iter().map(|byte| u64::from(*byte)))
        })
    };
    let explain = |bytes: &[u8]| {
        strings::Column::open(level, bytes, count, 1 << 30).expect("what was written").explain()
    };
    let mut all: Vec<Way<'_>> = Vec::new();
    for (engine, goal) in GOALS {
        let bytes = strings::encode(level, goal, rows).expect("few rows");
        all.push((engine.to_owned(), bytes.clone(), explain(&bytes), Box::new(decode)));
    }
    for encoding in strings::Encoding::ALL {
        if let Some(bytes) = strings::encode_as(level, Goal::Balanced, encoding, rows).expect("few rows") {
            let engine = format!("keirin:{encoding:?}").to_lowercase();
            all.push((engine, bytes.clone(), explain(&bytes), Box::new(decode)));
        }
    }
    let mut out = text.clone();
    let copy = Lane::new("memcpy", || {
        out.offsets.copy_from_slice(&text.offsets);
        out.bytes.copy_from_slice(&text.bytes);
        ends(out.bytes.iter().map(|byte| u64::from(*byte)))
    });
    ways(report, case, text.bytes.len() + text.offsets.len() * 4, &all, copy);
}

/// What a user gets, and the two ends of the trade.
pub(super) const GOALS: [(&str, Goal); 3] =
    [("keirin", Goal::Balanced), ("keirin:smallest", Goal::Smallest), ("keirin:fastest", Goal::Fastest)];

/// Enough of the values to see that they are the right ones, and little enough to cost nothing.
fn ends(values: impl ExactSizeIterator<Item = u64> + Clone) -> u64 {
    let count = values.len();
    let some = [0, 1, count / 3, count / 2, count.saturating_sub(1)];
    some.into_iter().fold(0, |sum, place| {
        let value = values.clone().nth(place).unwrap_or_default();
        (sum ^ value).rotate_left(7)
    })
}
