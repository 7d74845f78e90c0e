//! Records, fields, NULLs, types, line by line.

use arrow::datatypes::{DataType, TimeUnit};
use keirin_csv::Options;

use crate::{check, check_with};

const AB: &[&str] = &["a Int64", "b Utf8"];

#[test]
fn line_ends_may_be_mixed() {
    check("a,b\n1,x\r\n2,y\r3,z\n", AB, &["1|x", "2|y", "3|z"]);
    check("a,b\r\n1,x\r\n2,y", AB, &["1|x", "2|y"]);
    check("a,b\r1,x\r2,y\r", AB, &["1|x", "2|y"]);
}

#[test]
fn quoted_fields_hold_anything() {
    check("a,b\n1,\"x,y\"\n2,\"line\nbreak\r\nand\rmore\"\n", AB, &["1|x,y", "2|line\nbreak\r\nand\rmore"]);
    check("a,b\n1,\"say \"\"hi\"\"\"\n2,\"\"\"\"\n", AB, &["1|say \"hi\"", "2|\""]);
    check("a,b\n1,\"x\" \n2,\"y\"\t\n", AB, &["1|x", "2|y"]);
    check("a,b\n1,\"x\"\n2,5\" pipe\n3,a\"b\"\n", AB, &["1|x", "2|5\" pipe", "3|a\"b\""]);
    check("\"a\",\"b\"\n\"1\",\"x\"\n", AB, &["1|x"]);
}

#[test]
fn escapes_count_inside_quotes_only() {
    check("a,b\n1,\"x \\\"y\\\" \\\\\"\n2,\"z\"\n3,\\n\n", AB, &["1|x \"y\" \\", "2|z", "3|\\n"]);
    let options = Options { escape: Some(Some(b'^')), ..Options::default() };
    check_with(&options, "a,b\n1,\"x^\"y^^\"\n2,^\n", AB, &["1|x\"y^", "2|^"]);
    let none = Options { escape: Some(None), ..Options::default() };
    check_with(&none, "a,b\n1,\"x\\\"\n", AB, &["1|x\\"]);
}

#[test]
fn an_unquoted_empty_field_is_null_and_a_quoted_one_is_an_empty_text() {
    check("a,b\n1,\n,\"\"\n3,x\n", AB, &["1|~", "~|", "3|x"]);
    check("a,b\n\"1\",\"x\"\n\"\",\"\"\n", AB, &["1|x", "~|"]);
}

#[test]
fn null_spellings_are_wider_among_numbers_than_among_texts() {
    check("a,b\n1,NA\nNA,x\nnull,NULL\n\\N,\\N\nN/A,null\n", AB, &["1|NA", "~|x", "~|~", "~|~", "~|null"]);
    check("a,b\n1,\"NULL\"\n", AB, &["1|NULL"]);
    check("a,b\n1,2.5\n2,NaN\n3,nan\n", &["a Int64", "b Float64"], &["1|2.5", "2|NaN", "3|NaN"]);
    let options = Options { nulls: Some(vec!["-".into(), "?".into()]), ..Options::default() };
    check_with(&options, "a,b\n1,-\n?,\n3,NULL\n", AB, &["1|~", "~|", "3|NULL"]);
}

#[test]
fn every_type_is_detected_and_read() {
    check(
        "b,i,u,f,d,t,z,n,h,s\n\
         true,-1,18446744073709551615,1.50,2024-02-29,2024-02-29 01:02:03.5,2024-02-29T01:00:00+02:00,\
         2024-02-29 00:00:00.000000001,12:34:56,01234\n\
         FALSE,,1,-2e3,1970-01-01,1969-12-31T23:59:59,1970-01-01T00:00:00Z,2024-02-29,00:00:00.25,x\n",
        &[
            "b Boolean",
            "i Int64",
            "u UInt64",
            "f Float64",
            "d Date32",
            "t Timestamp(µs)",
            "z Timestamp(µs, \"+00:00\")",
            "n Timestamp(ns)",
            "h Time64(µs)",
            "s Utf8",
        ],
        &[
            "true|-1|18446744073709551615|1.5|2024-02-29|2024-02-29T01:02:03.500|2024-02-28T23:00:00Z\
             |2024-02-29T00:00:00.000000001|12:34:56|01234",
            "false|~|1|-2000.0|1970-01-01|1969-12-31T23:59:59|1970-01-01T00:00:00Z\
             |2024-02-29T00:00:00|00:00:00.250|x",
        ],
    );
}

#[test]
fn blanks_around_values_are_part_of_texts_only() {
    check("a , b\n 1 , x \n2,y\n", AB, &["1| x ", "2|y"]);
    check("a,b\n1,x\n  ,y\n", AB, &["1|x", "~|y"]);
}

#[test]
fn types_may_be_given() {
    let give = |types: &[(&str, DataType)]| Options {
        types: types.iter().map(|(name, data_type)| ((*name).to_string(), data_type.clone())).collect(),
        ..Options::default()
    };
    check_with(&give(&[("A", DataType::Utf8)]), "a,b\n1,x\n", &["a Utf8", "b Utf8"], &["1|x"]);
    check_with(
        &give(&[("a", DataType::Decimal128(10, 2)), ("b", DataType::Utf8View)]),
        "a,b\n1.50,x\nNA,\n",
        &["a Decimal128(10, 2)", "b Utf8View"],
        &["1.50|x", "~|~"],
    );
    check_with(
        &give(&[("a", DataType::Int8), ("b", DataType::Boolean)]),
        "a,b\n007,yes\n+5,N\n",
        &["a Int8", "b Boolean"],
        &["7|true", "5|false"],
    );
    check_with(
        &give(&[("b", DataType::Timestamp(TimeUnit::Second, None)), ("a", DataType::Float32)]),
        "a,b\n0.1,13/02/2024\n",
        &["a Float32", "b Timestamp(s)"],
        &["0.1|2024-02-13T00:00:00"],
    );
    check_with(
        &give(&[("a", DataType::LargeUtf8), ("b", DataType::Date64)]),
        "a,b\nx,2024-02-13\n",
        &["a LargeUtf8", "b Date64"],
        &["x|2024-02-13T00:00:00"],
    );
    check_with(
        &give(&[("a", DataType::Timestamp(TimeUnit::Second, Some("+02:00".into())))]),
        "a,b\n2024-02-13 12:00:00,x\n2024-02-13 12:00:00Z,y\n",
        &["a Timestamp(s, \"+02:00\")", "b Utf8"],
        &["2024-02-13T12:00:00+02:00|x", "2024-02-13T14:00:00+02:00|y"],
    );
    let text = Options { all_text: true, ..Options::default() };
    check_with(&text, "a,b\n1,2024-01-01\n", &["a Utf8", "b Utf8"], &["1|2024-01-01"]);
    check_with(&text, "a,1\nb,2\n", &["column1 Utf8", "column2 Utf8"], &["a|1", "b|2"]);
}

#[test]
fn formats_of_dates_may_be_given() {
    let options = Options {
        date_format: Some("%d/%m/%Y".into()),
        timestamp_format: Some("%d/%m/%Y %Hh%M".into()),
        ..Options::default()
    };
    check_with(
        &options,
        "a,b\n01/02/2024,01/02/2024 03h04\n",
        &["a Date32", "b Timestamp(µs)"],
        &["2024-02-01|2024-02-01T03:04:00"],
    );
}

#[test]
fn blank_lines_are_skipped_where_there_are_several_columns() {
    check("\n\na,b\n\n1,x\n \n2,y\n\r\n\n", AB, &["1|x", "2|y"]);
}

#[test]
fn in_one_column_a_blank_line_is_null() {
    check("a\n1\n\n3\n", &["a Int64"], &["1", "~", "3"]);
    check(
        "name\nBob, Jr.\nAnn\nEve, Mrs., Dr.\nTom\n",
        &["name Utf8"],
        &["Bob, Jr.", "Ann", "Eve, Mrs., Dr.", "Tom"],
    );
    check(" \n\na\n1\n", &["a Int64"], &["1"]);
    check("5\n6\n", &["column1 Int64"], &["5", "6"]);
}

#[test]
fn a_delimiter_at_the_end_of_a_line_makes_no_column() {
    check("a,b,\n1,x,\n2,y\n", AB, &["1|x", "2|y"]);
    check("1|x|\n2|y|\n", &["column1 Int64", "column2 Utf8"], &["1|x", "2|y"]);
    check("a,b,c\n1,x,\n2,y,\n", &["a Int64", "b Utf8", "c Utf8"], &["1|x|~", "2|y|~"]);
}

#[test]
fn short_records_are_filled_up_on_request() {
    let options = Options { null_padding: true, ..Options::default() };
    check_with(&options, "a,b\n1,x\n2\n3,z\n", AB, &["1|x", "2|~", "3|z"]);
    // Lines above a table without a header are such records, too.
    let options = Options { header: Some(false), ..options };
    let columns = ["column1 Utf8", "column2 Int64", "column3 Int64"];
    let rows = ["a title|~|~", "x|1|2", "y|3|4", "z|5|6"];
    check_with(&options, "a title\nx,1,2\ny,3,4\nz,5,6\n", &columns, &rows);
}

#[test]
fn empty_files_have_no_columns_and_a_header_alone_no_rows() {
    check("", &[], &[]);
    check("\n\r\n \n", &[], &[]);
    check("a,b\n", &["a Utf8", "b Utf8"], &[]);
    check("a,b", &["a Utf8", "b Utf8"], &[]);
    check("\u{FEFF}", &[], &[]);
    let named = Options { columns: vec!["x".into(), "y".into()], ..Options::default() };
    check_with(&named, "", &["x Utf8", "y Utf8"], &[]);
}

#[test]
fn names_are_kept_trimmed_and_made_unique() {
    check(
        " Total Amount ,total,,total,total_2,ÄÖ\n1,2,3,4,5,6\n",
        &[
            "Total Amount Int64",
            "total Int64",
            "column3 Int64",
            "total_2 Int64",
            "total_2_2 Int64",
            "ÄÖ Int64",
        ],
        &["1|2|3|4|5|6"],
    );
    let named = Options { columns: vec!["x".into()], ..Options::default() };
    check_with(&named, "a,b\n1,x\n", &["x Int64", "b Utf8"], &["1|x"]);
    check_with(&named, "1,x\n2,y\n", &["x Int64", "column2 Utf8"], &["1|x", "2|y"]);
}

#[test]
fn a_byte_order_mark_and_nul_bytes_do_no_harm() {
    check("\u{FEFF}a,b\n1,x\n", AB, &["1|x"]);
    check("a,b\n1,x\0y\n", AB, &["1|x\0y"]);
}

#[test]
fn lines_may_be_skipped_and_commented() {
    let options = Options { skip_lines: Some(2), ..Options::default() };
    check_with(&options, "one \"two\r\n\r\na,b\n1,x\n", AB, &["1|x"]);
    let options = Options { comment: Some(Some(b'%')), ..Options::default() };
    check_with(&options, "% it's \"\na,b\n%\n1,x\n% 2,y\n3,z", AB, &["1|x", "3|z"]);
}
