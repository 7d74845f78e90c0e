//! Dialects and headers told from samples.

use keirin_csv::{Options, Source};

use crate::{check, check_with};

const AB: &[&str] = &["a Int64", "b Utf8"];

#[test]
fn delimiters_are_detected() {
    check("a;b\n1;x,y\n2;z\n", AB, &["1|x,y", "2|z"]);
    check("a\tb\n1\tx, y\n2\tz\n", AB, &["1|x, y", "2|z"]);
    check("a|b\n1|x\n", AB, &["1|x"]);
    check("a\u{1}b\n1\u{1}x\n2\u{1}y\n", AB, &["1|x", "2|y"]);
    check("a^b\n1^x\n2^y\n", AB, &["1|x", "2|y"]);
    check("1,5;2,5\n3,5;4,25\n", &["column1 Utf8", "column2 Utf8"], &["1,5|2,5", "3,5|4,25"]);
    check("time\n12:30:00\n01:02:03\n", &["time Time64(µs)"], &["12:30:00", "01:02:03"]);
    check("a,b\n1,\"x;y;z\"\n2,\"u;v;w\"\n", AB, &["1|x;y;z", "2|u;v;w"]);
    let options = Options { delimiter: Some(b';'), ..Options::default() };
    check_with(&options, "a,b\n1,2\n", &["a,b Utf8"], &["1,2"]);
}

#[test]
fn quotes_are_detected() {
    check("a,b\n1,'x,y'\n2,'it''s'\n", AB, &["1|x,y", "2|it's"]);
    check("a,b\n1,'tis\n2,x\n3,y\n", AB, &["1|'tis", "2|x", "3|y"]);
    // A lone quote in a file that is regular without quotes is a character.
    check(
        "a\tb\tc\n1\t\"red 70\t2\n3\tx\t4\n",
        &["a Int64", "b Utf8", "c Int64"],
        &["1|\"red 70|2", "3|x|4"],
    );
    let options = Options { quote: Some(None), ..Options::default() };
    check_with(&options, "a,b\n1,\"x\"\n", AB, &["1|\"x\""]);
}

#[test]
fn headers_are_told_from_data() {
    check("1,2\n3,4\n", &["column1 Int64", "column2 Int64"], &["1|2", "3|4"]);
    check("x,2\ny,4\n", &["column1 Utf8", "column2 Int64"], &["x|2", "y|4"]);
    check("name,city\nBob,Rome\n", &["name Utf8", "city Utf8"], &["Bob|Rome"]);
    check("Bob,Rome\nAnn,Rome\n", &["column1 Utf8", "column2 Utf8"], &["Bob|Rome", "Ann|Rome"]);
    check("name,when\n,\nBob,2024-01-01\n", &["name Utf8", "when Date32"], &["~|~", "Bob|2024-01-01"]);
    check(",n\nx,1\n", &["column1 Utf8", "n Int64"], &["x|1"]);
    check("2024-01-01,1\n", &["column1 Date32", "column2 Int64"], &["2024-01-01|1"]);
    let no = Options { header: Some(false), ..Options::default() };
    check_with(&no, "a,b\n", &["column1 Utf8", "column2 Utf8"], &["a|b"]);
    let yes = Options { header: Some(true), ..Options::default() };
    check_with(&yes, "1,2\n3,4\n", &["1 Int64", "2 Int64"], &["3|4"]);
}

#[test]
fn known_names_are_a_header_and_other_words_may_be_none() {
    let header_names = vec!["name".to_owned(), "city".to_owned()];
    let known = Options { header_names, ..Options::default() };
    let as_named = &["name Utf8", "city Utf8"];
    check_with(&known, "name,city\n,city\n", as_named, &["~|city"]);
    check_with(&known, "who,where\nBob,Rome\n", &["who Utf8", "where Utf8"], &["Bob|Rome"]);
    let only = Options { no_other_header: true, ..known };
    check_with(&only, "Ann,Oslo\nBob,Rome\n", &["column1 Utf8", "column2 Utf8"], &["Ann|Oslo", "Bob|Rome"]);
    check_with(&only, "NAME,City\nBob,Rome\n", &["NAME Utf8", "City Utf8"], &["Bob|Rome"]);
    check_with(&only, "city,name\nRome,Bob\n", &["city Utf8", "name Utf8"], &["Rome|Bob"]);
    check_with(&only, "who,count\nBob,5\n", &["who Utf8", "count Int64"], &["Bob|5"]);
}

#[test]
fn lines_above_the_table_are_skipped() {
    check("Report of May\n\na,b,c\n1,2,3\n4,5,6\n", &["a Int64", "b Int64", "c Int64"], &["1|2|3", "4|5|6"]);
    check("# made by x\n# y\na,b\n1,x\n# more\n2,y\n", AB, &["1|x", "2|y"]);
    check("##v=1\n#id\tname\n1\tx\n", &["#id Int64", "name Utf8"], &["1|x"]);
}

#[test]
fn a_record_longer_than_the_sample_is_looked_at_whole() {
    let long = "x".repeat(10_000);
    let options = Options { sample_bytes: 16, ..Options::default() };
    check_with(&options, &format!("{long},b\n1,x\n"), &[&format!("{long} Int64"), "b Utf8"], &["1|x"]);
}

#[test]
fn the_dialect_is_reported() {
    let mut source = Source::new("t", &b"x\nx\na;b\n'1';'x'\n'2';'y'\n"[..], None).unwrap();
    let options = Options { skip_lines: Some(2), ..Options::default() };
    let dialect = source.detect(&options).unwrap().dialect;
    assert_eq!((dialect.delimiter, dialect.quote, dialect.escape), (b';', Some(b'\''), Some(b'\'')));
    assert_eq!((dialect.header, dialect.skip_lines, dialect.comment), (true, 2, None));
}
