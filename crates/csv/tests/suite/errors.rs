//! Bad records: where, what, and what to do.

use arrow::datatypes::DataType;
use keirin_csv::{Options, Reject};

use crate::{read, show};

fn ignoring() -> Options {
    Options { ignore_errors: true, header: Some(true), ..Options::default() }
}

/// The error, and what is left when it is ignored: rows and rejects as `line@offset column text`.
fn check_with(options: &Options, text: &[u8], error: &str, rows: &[&str], rejects: &[&str]) {
    let shown = String::from_utf8_lossy(text);
    for chunk_bytes in [1, 2, 3, 5, 8, 1 << 20] {
        let options = Options { chunk_bytes, header: Some(true), ..options.clone() };
        let found = read(text, &options).expect_err(&shown);
        assert_eq!(found.to_string(), error, "{shown:?} in chunks of {chunk_bytes} bytes");
        let table = read(text, &Options { ignore_errors: true, ..options }).expect(&shown);
        assert_eq!(show(&table.rows), rows, "{shown:?} in chunks of {chunk_bytes} bytes");
        let column = |reject: &Reject| reject.column.clone().unwrap_or_else(|| "-".into());
        let found = |reject: &Reject| {
            format!("{}@{} {} {}", reject.line, reject.byte_offset, column(reject), reject.text)
        };
        assert_eq!(table.rejects.iter().map(found).collect::<Vec<_>>(), rejects, "{shown:?}");
    }
}

fn check(text: &str, error: &str, rows: &[&str], rejects: &[&str]) {
    // The first data record decides the types.
    let options = Options { sample_rows: 1, ..Options::default() };
    check_with(&options, text.as_bytes(), error, rows, rejects);
}

#[test]
fn a_value_that_does_not_convert_is_named_with_its_place() {
    check(
        "a,b\n1,x\n2,y\nthree,z\n4,u\nfive,v\n",
        "t.csv, line 4, column 1 (a): 'three' is not a BIGINT",
        &["1|x", "2|y", "4|u"],
        &["4@12 a three,z", "6@24 a five,v"],
    );
    check(
        "a,d\n1,2024-01-01\n2,2024-02-30\n",
        "t.csv, line 3, column 2 (d): '2024-02-30' is not a DATE (YYYY-MM-DD)",
        &["1|2024-01-01"],
        &["3@17 d 2,2024-02-30"],
    );
    check(
        "a,d\n1,2024-01-01 00:00:00\n2,\"x\n\n\"\"y\"\n",
        "t.csv, line 3, column 2 (d): 'x\\n\\n\"\"y' is not a TIMESTAMP (YYYY-MM-DD HH:MM:SS)",
        &["1|2024-01-01T00:00:00"],
        &["3@26 d 2,\"x\n\n\"\"y\""],
    );
}

#[test]
fn of_several_bad_values_the_leftmost_is_reported_and_the_record_once() {
    check(
        "a,b,c\n1,2,3\nx,y,z\n4,5,6\n",
        "t.csv, line 3, column 1 (a): 'x' is not a BIGINT",
        &["1|2|3", "4|5|6"],
        &["3@12 a x,y,z"],
    );
}

#[test]
fn lines_are_counted_through_quoted_line_ends_blank_lines_and_comments() {
    check(
        "a,b\r\n\r\n1,\"x\r\ny\nz\rw\"\r\rno,v\n",
        "t.csv, line 8, column 1 (a): 'no' is not a BIGINT",
        &["1|x\r\ny\nz\rw"],
        &["8@21 a no,v"],
    );
    let options =
        Options { skip_lines: Some(2), comment: Some(Some(b'#')), sample_rows: 1, ..Options::default() };
    check_with(
        &options,
        b"\xEF\xBB\xBFtitle\r\n\na,b\n1,x\n#c\nno,v\n",
        "t.csv, line 6, column 1 (a): 'no' is not a BIGINT",
        &["1|x"],
        &["6@22 a no,v"],
    );
}

#[test]
fn ragged_records_are_bad() {
    check(
        "a,b\n1,x\n2\n3,y,z\n4,w\n",
        "t.csv, line 3: expected 2 fields, found 1",
        &["1|x", "4|w"],
        &["3@8 - 2", "4@10 - 3,y,z"],
    );
}

#[test]
fn text_after_a_closing_quote_is_bad() {
    let options = Options { quote: Some(Some(b'"')), ..Options::default() };
    check_with(
        &options,
        b"a,b\n1,\"x\"\n2,\"y\"z\n3,\"u\" \"v\"\n4,\"w\"\n",
        "t.csv, line 3: there is text between a closing quote and the next delimiter",
        &["1|x", "4|w"],
        &["3@10 - 2,\"y\"z", "4@17 - 3,\"u\" \"v\""],
    );
}

#[test]
fn a_quote_that_never_closes_costs_one_line() {
    let options = Options { quote: Some(Some(b'"')), ..Options::default() };
    check_with(
        &options,
        b"a,b\n1,x\n2,\"y\n3,z\r\n4,w",
        "t.csv, line 3: a quote is opened here and not closed before the end of the file",
        &["1|x", "3|z", "4|w"],
        &["3@8 - 2,\"y"],
    );
}

#[test]
fn a_record_longer_than_the_limit_costs_its_first_line() {
    let options =
        Options { max_line_bytes: 10, quote: Some(Some(b'"')), sample_bytes: 8, ..Options::default() };
    check_with(
        &options,
        b"a,b\n1,x\n2,yyyyyyyyyyyyyyyyyyyyyyyyy\r\n3,z\n4,\"w\n\n5\n\n\n\n\n6\"\n7,v\n",
        "t.csv, line 3: the record is longer than 10 bytes",
        &["1|x", "3|z", "7|v"],
        &["3@8 - 2,yyyyyyyyyyyyyyyyyyyyyyyyy", "5@41 - 4,\"w", "7@47 - 5", "12@53 - 6\""],
    );
}

#[test]
fn text_that_is_not_utf8_is_bad_where_it_is_read() {
    let options = Options { sample_rows: 1, ..Options::default() };
    check_with(
        &options,
        b"a,b\n1,x\n2,caf\xE9\n3,\xC3\n4,\xA9\n5,\xC3\xA9\n",
        "t.csv, line 3, column 2 (b): 'caf\u{FFFD}' is not valid UTF-8",
        &["1|x", "5|\u{e9}"],
        &["3@8 b 2,caf\u{FFFD}", "4@15 b 3,\u{FFFD}", "5@19 b 4,\u{FFFD}"],
    );
}

#[test]
fn given_types_are_checked_as_detected_ones() {
    let give = |data_type| Options { types: vec![("a".into(), data_type)], ..Options::default() };
    let check = |data_type, good: &str, bad: &str, error: &str| {
        let text = format!("a,b\n1,x\n{bad},y\n");
        let reject = format!("3@8 a {bad},y");
        check_with(&give(data_type), text.as_bytes(), error, &[good], &[&reject]);
    };
    check(DataType::Int8, "1|x", "300", "t.csv, line 3, column 1 (a): '300' is not a TINYINT");
    check(DataType::Boolean, "true|x", "300", "t.csv, line 3, column 1 (a): '300' is not a BOOLEAN");
    check(
        DataType::Decimal128(3, 1),
        "1.0|x",
        "12345",
        "t.csv, line 3, column 1 (a): '12345' is not a DECIMAL(3, 1)",
    );
    check(DataType::Float32, "1.0|x", "ten", "t.csv, line 3, column 1 (a): 'ten' is not a REAL");
}

#[test]
fn hints_say_what_to_do() {
    let check = |text: &str, hint: &str| {
        let error = read(text.as_bytes(), &Options { sample_rows: 1, ..Options::default() }).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some(hint));
    };
    check(
        "it's,b\n1,x\nz,y\n",
        "read the column as text with types = {'it''s': 'VARCHAR'}, or leave such lines out with ignore_errors = true",
    );
    check(
        "a,b\n1,2\n3\n",
        "fill short lines with NULL by null_padding = true, or leave such lines out with ignore_errors = true",
    );
}

#[test]
fn values_in_messages_are_short_and_printable() {
    let text = format!("a,b\n1,x\n\u{1b}[31m{},y\n", "z".repeat(1000));
    let error = read(text.as_bytes(), &Options { sample_rows: 1, ..Options::default() }).unwrap_err();
    let shown = format!("t.csv, line 3, column 1 (a): '\\u{{1b}}[31m{}...' is not a BIGINT", "z".repeat(59));
    assert_eq!(error.to_string(), shown);
    let long = format!("a,b\n1,x\nz,{}\n", "y".repeat(100_000));
    let table = read(long.as_bytes(), &Options { sample_rows: 1, ..ignoring() }).unwrap();
    assert_eq!(table.rejects[0].text.len(), 4096);
}

#[test]
fn an_unknown_column_in_types_is_answered_with_the_names() {
    let options = Options { types: vec![("c".into(), DataType::Utf8)], ..Options::default() };
    let error = read(b"a,b\n1,x\n", &options).unwrap_err();
    assert_eq!(error.to_string(), "t.csv: has no column 'c' to give a type; it has a, b");
    let options = Options { columns: vec!["x".into(); 3], ..Options::default() };
    let error = read(b"a,b\n1,x\n", &options).unwrap_err();
    assert_eq!(error.to_string(), "t.csv: has 2 columns, but 3 names were given");
}
