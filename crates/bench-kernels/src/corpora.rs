//! Bytes as codecs meet them: the corpora of `KEIRIN_DATA`, columns of real taxi trips and web hits, and columns
//! shaped like TPC-H's. Values are little endian, texts are joined by line ends. Or any files: those that nobody tuned
//! a loop for say more.

#![allow(clippy::cast_possible_truncation, reason = "the numbers are small")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use keirin_testkit::columns::Random;
use keirin_testkit::data;

/// No more of a file than this is used.
pub(crate) const BYTES_MAX: usize = 8 << 20;

/// Smaller files are joined.
const SMALL_BYTES: usize = 900 << 10;

/// The files of a folder and of those in it, by name; small ones are joined.
pub(crate) fn of_folder(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut paths = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() { folders.push(path) } else { paths.push(path) }
        }
    }
    paths.sort();
    let mut corpora = Vec::new();
    add_files(paths, &mut corpora);
    corpora.retain(|(_, bytes)| !bytes.is_empty());
    corpora.iter_mut().for_each(|(_, bytes)| bytes.truncate(BYTES_MAX));
    corpora
}

/// Names and bytes. Without `KEIRIN_DATA`, the made columns alone; with `is_quick`, a few.
pub(crate) fn all(is_quick: bool) -> Vec<(String, Vec<u8>)> {
    let mut corpora = made();
    if !is_quick {
        if let Some(pack) = data::pack("corpora") {
            files(&pack.join("corpora"), &mut corpora);
        }
        if let Some(pack) = data::pack("nyc_taxi") {
            taxi(&pack.join("nyc_taxi/gx_yellow_10k"), &mut corpora);
        }
        if let Some(pack) = data::pack("clickbench") {
            hits(&pack.join("clickbench"), &mut corpora);
        }
    }
    corpora.iter_mut().for_each(|(_, bytes)| bytes.truncate(BYTES_MAX));
    corpora
}

/// The files of a corpus, in order; those that do not compress say nothing about decoding.
fn files(directory: &Path, corpora: &mut Vec<(String, Vec<u8>)>) {
    const NOT_CORPORA: [&str; 5] =
        ["baddata1.snappy", "baddata2.snappy", "baddata3.snappy", "fireworks.jpeg", "paper-100k.pdf"];
    let mut paths: Vec<_> = ["silesia", "snappy_testdata", "fsst_dbtext"]
        .iter()
        .flat_map(|folder| fs::read_dir(directory.join(folder)).expect("the pack has this folder"))
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    paths.sort();
    let is_corpus =
        |path: &PathBuf| path.file_name().is_some_and(|name| !NOT_CORPORA.iter().any(|other| name == *other));
    paths.retain(is_corpus);
    add_files(paths, corpora);
}

fn add_files(paths: Vec<PathBuf>, corpora: &mut Vec<(String, Vec<u8>)>) {
    let mut small = Vec::new();
    for path in paths {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let bytes = fs::read(&path).expect("a readable file");
        if bytes.len() < SMALL_BYTES {
            small.extend(bytes);
        } else {
            corpora.push((name, bytes));
        }
    }
    corpora.push(("small files".to_owned(), small));
}

fn taxi(directory: &Path, corpora: &mut Vec<(String, Vec<u8>)>) {
    let mut paths: Vec<_> = fs::read_dir(directory)
        .expect("the pack has this folder")
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    paths.sort();
    let months: Vec<String> = paths.iter().map(|path| fs::read_to_string(path).expect("text")).collect();
    let rows: Vec<Vec<&str>> = months
        .iter()
        .flat_map(|month| month.lines().skip(1))
        .map(|line| line.trim_end().split(',').collect::<Vec<_>>())
        .filter(|row| row.len() >= 17)
        .collect();
    let number = |row: &Vec<&str>, column: usize| row[column].parse::<f64>().unwrap_or(0.0);
    let mut add = |name: &str, value: &dyn Fn(&Vec<&str>) -> Vec<u8>| {
        corpora.push((format!("taxi {name}"), rows.iter().flat_map(value).collect()));
    };
    add("pickup i64", &|row| seconds(row[1]).wrapping_mul(1_000_000).to_le_bytes().to_vec());
    add("dropoff i64", &|row| seconds(row[2]).wrapping_mul(1_000_000).to_le_bytes().to_vec());
    add("passengers i64", &|row| (number(row, 3) as i64).to_le_bytes().to_vec());
    add("distance f64", &|row| number(row, 4).to_le_bytes().to_vec());
    add("zone i64", &|row| (number(row, 7) as i64).to_le_bytes().to_vec());
    add("fare f64", &|row| number(row, 10).to_le_bytes().to_vec());
    add("tip f64", &|row| number(row, 13).to_le_bytes().to_vec());
    add("total f64", &|row| number(row, 16).to_le_bytes().to_vec());
}

fn hits(directory: &Path, corpora: &mut Vec<(String, Vec<u8>)>) {
    let path = fs::read_dir(directory)
        .expect("the pack has this folder")
        .map(|entry| entry.expect("a readable folder").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .expect("the pack has rows");
    let mut text = String::new();
    let file = fs::File::open(path).expect("a readable file");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("compressed text");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let column = |index: usize| rows.iter().filter_map(move |row| row.get(index).copied());
    let texts = |index| column(index).flat_map(|text| [text, "\n"].concat().into_bytes()).collect::<Vec<_>>();
    corpora.push(("hits texts".to_owned(), [2, 13, 14].into_iter().flat_map(texts).collect()));
    corpora
        .push(("hits time i64".to_owned(), column(4).flat_map(|text| seconds(text).to_le_bytes()).collect()));
    let numbers =
        |index| column(index).flat_map(|text| text.parse::<i64>().unwrap_or(0).to_le_bytes()).collect();
    corpora.push(("hits user i64".to_owned(), numbers(9)));
    corpora.push(("hits region i64".to_owned(), numbers(8)));
}

/// Seconds of `YYYY-MM-DD hh:mm:ss`, as if all months had 31 days.
fn seconds(text: &str) -> i64 {
    let numbers: Vec<i64> = text.split(['-', ' ', ':']).map(|part| part.parse().unwrap_or(0)).collect();
    let [year, month, day, hour, minute, second] = numbers[..] else { return 0 };
    ((((year * 12 + month) * 31 + day) * 24 + hour) * 60 + minute) * 60 + second
}

/// Columns with the distributions of TPC-H's `lineitem`, and some extremes.
fn made() -> Vec<(String, Vec<u8>)> {
    const ROWS: usize = 1 << 19;
    const MADE_BYTES: usize = 8 * ROWS;
    let mut corpora = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>| corpora.push((name.to_owned(), bytes));
    fn rows<const N: usize>(seed: u64, value: impl Fn(&mut Random) -> [u8; N]) -> Vec<u8> {
        let mut random = Random::new(seed);
        (0..MADE_BYTES / N).flat_map(|_| value(&mut random)).collect()
    }
    let mut order = 0_i64;
    let mut random = Random::new(1);
    let mut keys = Vec::new();
    while keys.len() < 8 * ROWS {
        order += if order % 32 == 7 { 25 } else { 1 };
        for _ in 0..=random.below(7) {
            keys.extend(order.to_le_bytes());
        }
    }
    add("l_orderkey i64", keys);
    add("l_partkey i64", rows(2, |random| (random.below(200_000) + 1).to_le_bytes()));
    add("l_suppkey i64", rows(3, |random| (random.below(10_000) + 1).to_le_bytes()));
    add("l_quantity i64", rows(4, |random| (100 * (random.below(50) + 1)).to_le_bytes()));
    add("l_quantity i128", rows(5, |random| u128::from(100 * (random.below(50) + 1)).to_le_bytes()));
    add(
        "l_extendedprice i64",
        rows(6, |random| ((random.below(50) + 1) * (90_000 + random.below(110_000))).to_le_bytes()),
    );
    add(
        "l_extendedprice f64",
        rows(7, |random| {
            (((random.below(50) + 1) * (90_000 + random.below(110_000))) as f64 / 100.0).to_le_bytes()
        }),
    );
    add("l_discount i64", rows(8, |random| random.below(11).to_le_bytes()));
    add("l_tax f64", rows(9, |random| (random.below(9) as f64 / 100.0).to_le_bytes()));
    add("l_returnflag u8", rows(10, |random| [b"ARNN"[random.below(4) as usize]]));
    add("l_shipdate i32", rows(11, |random| (8036 + random.below(2526) as u32).to_le_bytes()));
    let modes = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];
    let mut random = Random::new(12);
    let mode = |_| modes[random.below(7) as usize].bytes().chain([b'\n']).collect::<Vec<u8>>();
    add("l_shipmode text", (0..ROWS).flat_map(mode).collect());
    add("booleans", rows(13, |random| [u8::from(random.chance(0.1))]));
    add("zeros", vec![0; 8 * ROWS]);
    corpora
}
