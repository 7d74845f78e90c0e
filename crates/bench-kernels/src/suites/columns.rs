//! Whole columns of tables as frames, beside what Parquet and ClickHouse make of them.
//!
//! `benchmarks/column_sizes.py` writes the columns to the folder that `KEIRIN_COLUMNS` names, and the sizes of the
//! others beside them. Sizes are those of all frames, of 65,536 rows each; decoding begins with the header.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use std::{fs, io};

use keirin_codecs::blocks::Decoder;
use keirin_codecs::frame::{self, Compression, Frame, Kind, Limits};
use keirin_codecs::integers::Int;
use keirin_codecs::strings::Buffer;
use keirin_codecs::{Choice, Goal};
use keirin_kernels::Level;
use keirin_kernels::text::{Strings, Text};
use keirin_race::Races;

use super::encodings::{GOALS, ROWS};
use crate::duel::{Lane, Report, Unit};

/// A column, with the name of its table in front.
enum Values {
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F64(Vec<f64>),
    Text(Buffer),
}

/// Adds the cases, and prints who is smaller how often.
pub(super) fn run(report: &mut Report) {
    let Some(folder) = std::env::var_os("KEIRIN_COLUMNS") else { return };
    let folder = Path::new(&folder);
    let rivals: BTreeMap<String, BTreeMap<String, usize>> = fs::read_to_string(folder.join("sizes.json"))
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .expect("the sizes that benchmarks/column_sizes.py writes");
    let mut totals = Totals::default();
    for (name, rivals) in &rivals {
        let case = format!("column {name}");
        if let Some(values) = report.wants(&case).then(|| read(folder, name)).flatten() {
            let ours = of_column(report, &case, &values);
            for (rival, bytes) in rivals {
                println!("  {case}: {rival:<20} {bytes:>10} bytes");
            }
            totals.add(&ours, rivals);
        }
    }
    totals.print();
}

/// The column of that name; `None` for the name of a table.
fn read(folder: &Path, name: &str) -> Option<Values> {
    let bytes =
        |extension: &str| -> io::Result<Vec<u8>> { fs::read(folder.join(format!("{name}.{extension}"))) };
    if let (Ok(text), Ok(ends)) = (bytes("text"), bytes("ends")) {
        let ends = ends.as_chunks().0.iter().map(|end| i32::from_le_bytes(*end));
        return Some(Values::Text(Buffer { offsets: std::iter::once(0).chain(ends).collect(), bytes: text }));
    }
    let i16s = |bytes: Vec<u8>| {
        Values::I16(bytes.as_chunks().0.iter().map(|value| i16::from_le_bytes(*value)).collect())
    };
    let i32s = |bytes: Vec<u8>| {
        Values::I32(bytes.as_chunks().0.iter().map(|value| i32::from_le_bytes(*value)).collect())
    };
    let i64s = |bytes: Vec<u8>| {
        Values::I64(bytes.as_chunks().0.iter().map(|value| i64::from_le_bytes(*value)).collect())
    };
    let f64s = |bytes: Vec<u8>| {
        Values::F64(bytes.as_chunks().0.iter().map(|value| f64::from_le_bytes(*value)).collect())
    };
    let found = bytes("i16").map(i16s).or_else(|_| bytes("i32").map(i32s));
    found.or_else(|_| bytes("i64").map(i64s)).or_else(|_| bytes("f64").map(f64s)).ok()
}

impl Values {
    fn byte_count(&self) -> usize {
        match self {
            Self::I16(values) => size_of_val(&values[..]),
            Self::I32(values) => size_of_val(&values[..]),
            Self::I64(values) => size_of_val(&values[..]),
            Self::F64(values) => size_of_val(&values[..]),
            Self::Text(text) => text.bytes.len() + size_of_val(&text.offsets[1..]),
        }
    }

    fn frames(&self, choice: Choice) -> Vec<Vec<u8>> {
        let level = Level::best();
        let frames: keirin_codecs::Result<Vec<_>> = match self {
            Self::I16(values) => {
                values.chunks(ROWS).map(|rows| frame::of_integers(level, choice, rows)).collect()
            }
            Self::I32(values) => {
                values.chunks(ROWS).map(|rows| frame::of_integers(level, choice, rows)).collect()
            }
            Self::I64(values) => {
                values.chunks(ROWS).map(|rows| frame::of_integers(level, choice, rows)).collect()
            }
            Self::F64(values) => {
                values.chunks(ROWS).map(|rows| frame::of_floats(level, choice, rows)).collect()
            }
            Self::Text(text) => {
                let row_count = text.rows(level).row_count();
                let block = |first| {
                    let offsets = &text.offsets[first..=row_count.min(first + ROWS)];
                    let rows = Strings::new(level, offsets, &text.bytes).expect("offsets that ascend");
                    frame::of_strings(level, choice, rows)
                };
                (0..row_count).step_by(ROWS).map(block).collect()
            }
        };
        frames.expect("blocks are small")
    }
}

/// Sizes by engine.
fn of_column(report: &mut Report, case: &str, values: &Values) -> BTreeMap<&'static str, usize> {
    let byte_count = values.byte_count();
    let mut sizes = BTreeMap::new();
    let mut lanes = Vec::new();
    for (engine, goal) in GOALS {
        let start = Instant::now();
        let frames = values.frames(Choice { may_compress: goal != Goal::Fastest, ..goal.into() });
        let written = byte_count as f64 / start.elapsed().as_nanos() as f64;
        let size = frames.iter().map(Vec::len).sum();
        let first = Frame::open(&frames[0], LIMITS).and_then(|frame| frame.explain(Level::best()));
        let explained = format!("{}, written at {written:.2} GB/s", first.expect("what was written"));
        report.size(case, engine, size, byte_count, &explained);
        sizes.insert(engine, size);
        let races = Races::default();
        let (mut buffer, mut out) = (Vec::new(), Decoded::default());
        lanes.push(Lane::new(engine, move || {
            frames.iter().for_each(|frame| decode(frame, &races, &mut buffer, &mut out));
            0
        }));
    }
    report.case(case, Unit::Bytes, byte_count, lanes);
    sizes
}

const LIMITS: Limits = Limits { rows: u32::MAX, bytes: u64::MAX };

/// Memory for the values of a block.
struct Decoded {
    i16: Vec<i16>,
    i32: Vec<i32>,
    i64: Vec<i64>,
    f64: Vec<f64>,
    text: Buffer,
}

impl Default for Decoded {
    fn default() -> Self {
        let text = Buffer { offsets: Vec::new(), bytes: Vec::new() };
        Self { i16: vec![0; ROWS], i32: vec![0; ROWS], i64: vec![0; ROWS], f64: vec![0.0; ROWS], text }
    }
}

fn decode(frame: &[u8], races: &Races, buffer: &mut Vec<u8>, out: &mut Decoded) {
    fn integers<T: Int>(frame: &Frame<'_>, out: &mut [T]) -> keirin_codecs::Result<()> {
        frame.integers::<T>(Level::best())?.decode_into(Level::best(), 0, &mut out[..frame.row_count()])
    }
    let level = Level::best();
    let frame = Frame::open(frame, LIMITS).expect("what was written");
    let frame = if frame.compression() == Compression::None {
        frame
    } else {
        let decoder = Decoder::new(frame.compression().into(), races, "column", frame.stored());
        frame.decompress(&decoder, buffer).expect("what was written")
    };
    let count = frame.row_count();
    let decoded = match frame.kind() {
        Kind::I16 => integers(&frame, &mut out.i16),
        Kind::I32 => integers(&frame, &mut out.i32),
        Kind::I64 => integers(&frame, &mut out.i64),
        Kind::F64 => {
            frame.floats::<f64>(level).and_then(|column| column.decode_into(level, 0, &mut out.f64[..count]))
        }
        _ => frame.strings(level).and_then(|column| column.decode_into(level, 0..count, &mut out.text)),
    };
    decoded.expect("what was written");
    black_box(out);
}

/// Bytes of all columns, and how often each of ours is smaller than each rival.
#[derive(Default)]
struct Totals {
    bytes: BTreeMap<String, usize>,
    wins: BTreeMap<(&'static str, String), (usize, usize)>,
}

impl Totals {
    fn add(&mut self, ours: &BTreeMap<&'static str, usize>, rivals: &BTreeMap<String, usize>) {
        let all = ours.iter().map(|(engine, bytes)| ((*engine).to_owned(), bytes));
        for (engine, bytes) in all.chain(rivals.iter().map(|(rival, bytes)| (rival.clone(), bytes))) {
            *self.bytes.entry(engine).or_default() += bytes;
        }
        for (engine, our_bytes) in ours {
            for (rival, bytes) in rivals {
                let (wins, count) = self.wins.entry((*engine, rival.clone())).or_default();
                *wins += usize::from(our_bytes <= bytes);
                *count += 1;
            }
        }
    }

    fn print(&self) {
        for (engine, bytes) in &self.bytes {
            println!("  all columns: {engine:<20} {bytes:>12} bytes");
        }
        for ((engine, rival), (wins, count)) in &self.wins {
            println!("  {engine} is not larger than {rival} on {wins} of {count} columns");
        }
    }
}
