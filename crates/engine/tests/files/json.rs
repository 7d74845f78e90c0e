//! JSON: layouts, types that are found, bad lines.

use keirin::ErrorKind;
use keirin_testkit::columns::Random;

use crate::Fixture;

#[test]
fn json_comes_in_three_layouts() {
    let fixture = Fixture::new();
    let layouts = [
        "{\"a\": 1, \"b\": \"x\"}\n\n{\"a\": 2.5, \"c\": [true]}\r\n{\"a\": null}",
        " [{\"a\": 1, \"b\": \"x\"},\n{\"a\": 2.5, \"c\": [true]} , {\"a\": null}\n]\n",
        "\u{feff}{\n  \"a\": 1,\n  \"b\": \"x\"\n}\n{\n \"a\": 2.5,\n \"c\": [true]\n}{\n\"a\": null}\n",
    ];
    for layout in layouts {
        let path = fixture.write("l.json", layout);
        fixture.check(
            &format!("SELECT a, b, c FROM '{path}'"),
            &["1.0|x|NULL", "2.5|NULL|[true]", "NULL|NULL|NULL"],
        );
        fixture.check(&format!("SELECT count(*) FROM '{path}'"), &["3"]);
    }
    let path = fixture.write("l.json", "{\"a\":1,\"b\":2}\n{\"a\":2,\n\"b\":3}\n");
    fixture.check(&format!("SELECT a, b FROM '{path}'"), &["1|2", "2|3"]);
    let path = fixture.write("l.json", "{\"\":5}\n{\"\":6}\n");
    fixture.check(&format!("SELECT count(*) FROM '{path}'"), &["2"]);
}

#[test]
fn json_values_that_disagree_are_text() {
    let fixture = Fixture::new();
    let path = fixture.write("m.json", "{\"v\": 1}\n{\"v\": \"one\"}\n{\"v\": {\"z\": 1.10, \"a\": []}}\n{\"v\": [1, 2]}\n{\"v\": null}\n{}\n");
    fixture.check(
        &format!("SELECT v FROM '{path}'"),
        &["1", "one", "{\"z\": 1.10, \"a\": []}", "[1, 2]", "NULL", "NULL"],
    );
}

#[test]
fn json_dates_and_timestamps_are_such() {
    let fixture = Fixture::new();
    let record = |day: &str| {
        format!(
            "{{\"d\": \"{day}\", \"t\": [\"{day}T12:30:00.5\"], \"z\": {{\"at\": \"{day}T01:00:00+02:00\"}}}}\n"
        )
    };
    let path = fixture.write("m.jsonl", record("2024-02-29") + "{\"d\": null}\n" + &record("2024-03-01"));
    fixture.check(
        &format!("SELECT d + INTERVAL '1 day', t[1], m.z.at FROM '{path}' m WHERE d > DATE '2024-02-29'"),
        &["2024-03-02|2024-03-01T12:30:00.500|2024-02-29T23:00:00Z"],
    );
    fixture.check(
        &format!("SELECT arrow_typeof(d), arrow_typeof(t[1]), arrow_typeof(m.z.at) FROM '{path}' m LIMIT 1"),
        &["Date32|Timestamp(µs)|Timestamp(µs, \"+00:00\")"],
    );
    let good: String = (0..30_000).map(|_| record("2024-02-29")).collect();
    for (late, parts) in [
        ("{\"d\": \"soon\"}", ["column 'd'", "'soon' is not a DATE"]),
        ("{\"d\": \"2024-02-29T12:00:00\"}", ["column 'd'", "is not a DATE"]),
        ("{\"d\": 19000}", ["column 'd'", "'19000' is not a DATE"]),
        ("{\"t\": [\"2024-02-29T12:00:00Z\"]}", ["column 't'", "is not a TIMESTAMP"]),
        ("{\"z\": {\"at\": \"never\"}}", ["column 'z.at'", "'never' is not a TIMESTAMP WITH"]),
    ] {
        let path = fixture.write("late.jsonl", format!("{good}{late}\n"));
        let parts = [&parts[..], &["late.jsonl", "line 30001"]].concat();
        fixture.check_error(
            &format!("SELECT max(d), max(t[1]), max(m.z.at) FROM '{path}' m"),
            ErrorKind::Data,
            &parts,
        );
    }
}

#[test]
fn json_errors_name_the_line() {
    let fixture = Fixture::new();
    let mut text: String = (0..30_000).map(|n| format!("{{\"n\": {n}}}\n")).collect();
    text.push_str("{\"n\": \"many\"}\n");
    let path = fixture.write("late.json", &text);
    let sql = format!("SELECT sum(n) FROM '{path}'");
    fixture.check_error(&sql, ErrorKind::Data, &["late.json", "line 30001", "many", "sample_size = -1"]);
    fixture.check(&format!("SELECT sum(n) FROM read_json('{path}', ignore_errors = true)"), &["449985000"]);
    fixture.check("SELECT line, text FROM system.rejects", &["30001|{\"n\": \"many\"}"]);
    fixture.check(&format!("SELECT max(n) FROM read_json('{path}', sample_size = -1)"), &["many"]);

    let check = |text: &str, parts: &[&str]| {
        let path = fixture.write("bad.json", text);
        fixture.check_error(&format!("SELECT * FROM '{path}'"), ErrorKind::Data, parts);
    };
    check("{\"a\": 1}\n{\"a\": 1,}\n", &["bad.json", "line 2", "column 9"]);
    check("[{\"a\": 1}, {\"a\": 2}", &["bad.json", "the array has no end"]);
    check("[{\"a\": 1}] x", &["bad.json", "line 1", "follows the end"]);
    check("{\"a\": 1}\n{\"a\": ", &["bad.json", "line 2, column 5: EOF"]);
    check("{\"a\": 1}\n{\"a\": \n\n", &["bad.json", "line 2, column 5: EOF"]);
    check("{\"a\": 1}\n{\"a\": \n{\"a\": 3}\n", &["bad.json", "line 2, column 5: EOF"]);
    check("{\"a\": 1} {\"a\": x}\n", &["bad.json", "line 1, column 16: expected"]);
    check("{\n\"a\":\n1}\n{\n\"a\": \n", &["bad.json", "line 5, column 4: EOF"]);
    check("1\n2\n", &["bad.json", "no objects"]);
    check("", &["bad.json", "no records"]);
    check("\u{0}\u{1}\u{2}", &["bad.json", "line 1"]);
}

#[test]
fn what_is_read_does_not_depend_on_what_else_is() {
    let fixture = Fixture::new();
    let mut random = Random::new(3);
    let texts = ["", "a", "{\\\"x\\\": [1]}", "\\\\", "\\u00e4,}", "ä]", "\\\\\\\"", "line\\n"];
    let mut below = |count: usize| usize::try_from(random.bits()).expect("64 bits") % count;
    let mut records = String::new();
    for _ in 0..5000 {
        let text = texts[below(texts.len())];
        let number = below(1000);
        let mut keys = vec![
            format!("\"n\": {number}"),
            format!("\"t\" :\"{text}\""),
            format!("\"l\":[{number} , {{}}]").replace("{}", "null"),
            format!("\"o\":{{\"a\":{number},\"b\":\"{text}\",\"c\":{{\"d\":[{number}],\"e\":\"{text}\"}}}}"),
            format!("\"\\u0065\":{number}"),
            format!("\"{}\":[{{\"{text}\":1}}]", below(40)),
        ];
        for at in (1..keys.len()).rev() {
            keys.swap(at, below(at + 1));
        }
        keys.truncate(below(keys.len()) + 1);
        let blank = [" ", "", "\t"][below(3)];
        records.push_str(&format!("{blank}{{{blank}{}{blank}}}{blank}\n", keys.join(",")));
    }
    let path = fixture.write("r.jsonl", &records);
    for columns in [
        "n",
        "t",
        "l",
        "e",
        "o.a",
        "o.b",
        "o.c.d, n",
        "o.c.e, o.a",
        "o",
        "o, o.a",
        "count(*)",
        "o IS NULL, o.a, t, l",
    ] {
        let columns = columns.replace("o.", "r.o.");
        let query = |options: &str| format!("SELECT {columns} FROM read_json('{path}'{options}) r");
        // With that option, all of each record is decoded.
        let expected = fixture.run(&query(", ignore_errors = true"));
        assert_eq!(fixture.run(&query("")), expected, "{columns}");
    }
}

#[test]
fn layouts_of_many_chunks_have_the_same_rows() {
    let fixture = Fixture::new();
    let texts = ["}, {", "[\\\"", "\\\\", "],\\n", "ä"];
    let record = |at: usize, blank: &str| {
        let text = texts[at % texts.len()].repeat(at % 300);
        format!("{{{blank}\"n\":{at},{blank}\"t\":\"{text}\",{blank}\"l\":[{{\"x\":[{at}]}},{{}}]{blank}}}")
    };
    let rows = 12_000;
    let join = |between: &str, blank: &str| {
        let records: Vec<String> = (0..rows).map(|at| record(at, blank)).collect();
        records.join(between)
    };
    // A record that is longer than a chunk.
    let long = format!("{{\"n\": -1, \"t\": \"{}\", \"l\": []}}", "[{".repeat(1_500_000));
    let layouts = [
        format!("{}\n{long}\n", join("\n", "")),
        format!("[{}, {long}]", join(",", "")),
        format!(" [\n{}\n,{long}]\n\n", join("\n,\n", "\n ")),
        format!("{}{long}", join("\n", "\n  ")),
    ];
    assert!(layouts.iter().all(|layout| layout.len() > 4 << 20));
    let query = "SELECT count(*), sum(n), sum(length(t)), max(length(t)), sum(l[1].x[1]) FROM";
    let expected = fixture.run(&format!("{query} '{}'", fixture.write("x.json", &layouts[0])));
    for layout in &layouts[1..] {
        let path = fixture.write("x.json", layout);
        fixture.check(&format!("{query} '{path}'"), &[&expected[0]]);
        fixture.check(&format!("SELECT count(*) FROM '{path}'"), &["12001"]);
    }
    let path = fixture.write("x.json", format!("{} more", layouts[2].trim_end()));
    fixture.check_error(
        &format!("{query} '{path}'"),
        ErrorKind::Data,
        &["text follows the end of the array"],
    );
    let path = fixture.write("x.json", &layouts[2][..layouts[2].len() - 3]);
    fixture.check_error(&format!("{query} '{path}'"), ErrorKind::Data, &["the array has no end"]);
}

#[test]
fn types_in_options_may_be_nested() {
    let fixture = Fixture::new();
    let path = fixture.write("s.json", "{\"o\": {\"a\": 1, \"c\": {\"d\": [2, 3]}}, \"x\": 5}\n{}\n");
    let columns = "{o: 'STRUCT(a BIGINT, c STRUCT(d BIGINT[]))', x: 'DECIMAL(4, 1)'}";
    fixture.check(
        &format!("SELECT s.o.a, s.o.c.d, x FROM read_json('{path}', columns = {columns}) s"),
        &["1|[2, 3]|5.0", "NULL|NULL|NULL"],
    );
}
