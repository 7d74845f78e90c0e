//! CSV: dialects, bad lines and where they are.

use std::fs;

use keirin::ErrorKind;

use crate::Fixture;

#[test]
fn csv_errors_name_the_place_and_bad_lines_can_be_kept() {
    let fixture = Fixture::new();
    let mut text = "id,name\n".to_owned();
    for id in 0..50_000 {
        text.push_str(&if id == 40_000 { "forty thousand,x\n".to_owned() } else { format!("{id},n{id}\n") });
    }
    let path = fixture.write("t.csv", text);
    fixture.check_error(
        &format!("SELECT sum(id) FROM '{path}'"),
        ErrorKind::Data,
        &["t.csv", "line 40002", "column 1", "(id)", "forty thousand", "ignore_errors = true"],
    );
    fixture.check(&format!("SELECT count(id) FROM read_csv('{path}', ignore_errors = true)"), &["49999"]);
    fixture.check(
        "SELECT line, column_name, value, text FROM system.rejects",
        &["40002|id|forty thousand|forty thousand,x"],
    );
    fixture.check(&format!("SELECT min(id) FROM read_csv('{path}', types = {{'id': 'VARCHAR'}})"), &["0"]);
    fixture.check_error(
        &format!("SELECT * FROM read_csv('{path}', delimm = ';')"),
        ErrorKind::Invalid,
        &["read_csv has no option 'delimm'", "did you mean 'delim'?"],
    );
}

#[test]
fn csv_options_override_what_is_detected() {
    let fixture = Fixture::new();
    let path = fixture.write("o.txt", "# made by hand\n1;2,5;x\n3;NA;y\n");
    let check = |options: &str, expected: &[&str]| {
        fixture.check(&format!("SELECT * FROM read_csv('{path}', {options})"), expected);
    };
    check("delim = ';', skip = 1, header = false", &["1|2,5|x", "3|NA|y"]);
    check(
        "sep = ';', comment = '#', header = false, nullstr = 'NA', names = ['a', 'b', 'c']",
        &["1|2,5|x", "3|NULL|y"],
    );
    check("delimiter = ';', skip = 1, header = false, all_varchar = true", &["1|2,5|x", "3|NA|y"]);
    fixture.check(
        &format!("SELECT arrow_typeof(a), arrow_typeof(b) = 'Float64' FROM read_csv('{path}', delim = ';', skip = 1, header = false, columns = {{'a': 'DOUBLE', 'b': 'VARCHAR', 'c': 'VARCHAR'}}) LIMIT 1"),
        &["Float64|false"],
    );
}

#[test]
fn the_rows_that_ignore_errors_leaves_do_not_depend_on_the_query() {
    let fixture = Fixture::new();
    let rows = |bad: &str, good: fn(usize) -> String| -> String {
        (0..30_000).map(|n| if n % 10_000 == 9_999 { bad.to_owned() } else { good(n) }).collect()
    };
    let csv = fixture.write("r.csv", format!("a,b\n{}", rows("x,1\n", |n| format!("{n},{n}\n"))));
    let json = fixture
        .write("r.json", rows("{\"a\": \"x\", \"b\": 1}\n", |n| format!("{{\"a\": {n}, \"b\": {n}}}\n")));
    for (path, function, first_line) in [(csv, "read_csv", 2), (json, "read_json", 1)] {
        let table = format!("{function}('{path}', ignore_errors = true, sample_size = 5000)");
        let lines = [9_999, 19_999, 29_999].map(|line| (line + first_line).to_string());
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        for query in ["count(*)", "count(a)", "count(b)", "count(a + b)"] {
            fixture.check(&format!("SELECT {query} FROM {table}"), &["29997"]);
            let rejects = format!("SELECT line FROM system.rejects WHERE file = '{path}'");
            fixture.check(&rejects, &lines);
        }
        fixture.check(&format!("SELECT count(*) FROM {table} x JOIN {table} y USING (a)"), &["29997"]);
        fixture.check(&format!("SELECT count(*) FROM system.rejects WHERE file = '{path}'"), &["3"]);
        // Once the file is good, nothing is left of what was bad.
        fs::write(&path, fs::read_to_string(&path).unwrap().replace('x', "1")).unwrap();
        fixture.check(&format!("SELECT count(*) FROM {table}"), &["30000"]);
        fixture.check(&format!("SELECT count(*) FROM system.rejects WHERE file = '{path}'"), &["0"]);
    }
}
