//! Files that are cut off, flipped or not what their name says.

use std::fs;

use keirin::ErrorKind;

use crate::Fixture;
use crate::copy::EVERYTHING;

#[test]
fn damaged_files_are_errors_that_name_them() {
    let fixture = Fixture::new();
    for name in ["good.parquet", "good.arrow", "good.csv.gz", "good.csv.zst"] {
        let path = fixture.path(name);
        fixture.check(&format!("COPY ({EVERYTHING}) TO '{path}'"), &["3000"]);
        let bytes = fs::read(&path).unwrap();
        let bad = fixture.write(&name.replace("good", "cut"), &bytes[..bytes.len() * 2 / 3]);
        fixture.check_error(&format!("SELECT * FROM '{bad}'"), ErrorKind::Data, &["cut."]);
        let empty = fixture.write(&name.replace("good", "empty"), "");
        fixture.check_error(&format!("SELECT * FROM '{empty}'"), ErrorKind::Data, &["empty."]);
        let text = fixture.write(&name.replace("good", "noise"), [0x1f, 0x8b, 0x00, 0xff].repeat(5000));
        fixture.check_error(&format!("SELECT * FROM '{text}'"), ErrorKind::Data, &["noise."]);
    }
}

#[test]
fn what_is_wrong_with_a_parquet_file_is_said() {
    let fixture = Fixture::new();
    let path = fixture.path("good.parquet");
    fixture.check(&format!("COPY (SELECT value AS n FROM range(0, 1000)) TO '{path}'"), &["1000"]);
    let bytes = fs::read(&path).unwrap();
    let length = bytes.len();
    let check = |bytes: &[u8], parts: &[&str]| {
        let bad = fixture.write("bad.parquet", bytes);
        for sql in [format!("FROM '{bad}'"), format!("SELECT count(*) FROM '{bad}'")] {
            fixture.check_error(&sql, ErrorKind::Data, &[parts, &["bad.parquet"]].concat());
        }
    };
    let cut = format!("it is cut off: its {} bytes begin as", length - 1);
    check(&bytes[..length - 1], &[&cut]);
    check(b"id,name\n1,Oslo\n", &["it is not a Parquet file: its 15 bytes neither begin nor end"]);
    check(b"PAR1", &["it has only 4 bytes"]);
    let damaged = |at: usize, byte: u8| {
        let mut damaged = bytes.clone();
        damaged[at] = byte;
        damaged
    };
    check(&damaged(length - 5, 0x7f), &["its footer is damaged: it claims 21"]);
    check(&damaged(length - 50, 0xff), &["its footer is damaged"]);
    let encrypted = fixture.write("secret.parquet", damaged(length - 1, b'E'));
    let parts = ["secret.parquet", "encrypted"];
    fixture.check_error(&format!("FROM '{encrypted}'"), ErrorKind::Unsupported, &parts);
}

/// Written by pyarrow 26 with `write_page_checksum=True`: 100 rows of `n` BIGINT, `t` VARCHAR in one page each.
const PAGE_CHECKSUMS: &[u8] = include_bytes!("../fixtures/page_checksums.parquet");

#[test]
fn a_damaged_page_with_a_checksum_is_an_error() {
    let fixture = Fixture::new();
    let path = fixture.write("whole.parquet", PAGE_CHECKSUMS);
    fixture.check(&format!("SELECT sum(n), min(t), count(*) FROM '{path}'"), &["4950|text 0|100"]);
    // The pages of n end at 883, those of t at 2029.
    for (at, column) in [(300, "n"), (882, "n"), (1500, "t"), (2028, "t")] {
        let mut bytes = PAGE_CHECKSUMS.to_vec();
        bytes[at] ^= 1;
        let path = fixture.write("flipped.parquet", bytes);
        for query in ["max({column} || '')", "count(DISTINCT {column})"] {
            let sql = format!("SELECT {} FROM '{path}'", query.replace("{column}", column));
            fixture.check_error(&sql, ErrorKind::Data, &["flipped.parquet", "it is damaged", "checksum"]);
        }
    }
}

#[test]
fn flipped_bytes_never_panic_or_hang() {
    let fixture = Fixture::new();
    for name in ["f.parquet", "f.arrow"] {
        let path = fixture.path(name);
        let query = EVERYTHING.replace("3000", "50");
        fixture.check(&format!("COPY ({query}) TO '{path}'"), &["50"]);
        let bytes = fs::read(&path).unwrap();
        // Rows or an error, whatever the byte: a damaged value may well be a value.
        for at in (0..bytes.len()).step_by(bytes.len() / 150 + 1) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0xff;
            let bad = fixture.write(&format!("b{name}"), &flipped);
            if let Err(error) = fixture.try_run(&format!("SELECT * FROM '{bad}'")) {
                assert_ne!(error.kind(), ErrorKind::Cancelled, "byte {at}: {error}");
                assert!(error.message().contains(&format!("b{name}")), "byte {at}: {error}");
            }
        }
    }
}
