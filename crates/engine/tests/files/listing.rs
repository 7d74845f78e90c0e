//! Which files a table is made of, and in which order its rows come.

use std::fs;

use keirin::ErrorKind;

use crate::Fixture;
use crate::copy::EVERYTHING;

#[test]
fn hive_directories_are_columns_in_every_format() {
    let fixture = Fixture::new();
    for (extension, format) in
        [("csv", "csv"), ("jsonl", "jsonl"), ("parquet", "parquet"), ("arrow", "arrow")]
    {
        for (year, month) in [(2023, "01"), (2023, "02"), (2024, "01")] {
            let directory = fixture.directory.path().join(format!("{format}/year={year}/month={month}"));
            fs::create_dir_all(&directory).unwrap();
            let file = directory.join(format!("x.{extension}"));
            fixture.check(
                &format!("COPY (SELECT {year} * 2 AS y2, '{month}' AS m) TO '{}'", file.display()),
                &["1"],
            );
        }
        let path = fixture.path(format);
        fixture.check(
            &format!("SELECT year, month, y2 FROM '{path}' WHERE year = 2023 ORDER BY month"),
            &["2023|1|4046", "2023|2|4046"],
        );
        fixture
            .check(&format!("SELECT sum(month) FROM '{path}/**/*.{extension}' WHERE y2 = 2 * year"), &["4"]);
        let function = if format == "jsonl" { "json" } else { format };
        fixture.check_error(
            &format!("SELECT year FROM read_{function}('{path}', hive_partitioning = false)"),
            ErrorKind::NotFound,
            &["year"],
        );
        fixture.check(
            &format!("SELECT month FROM read_{function}('{path}', hive_types = {{'month': 'VARCHAR'}}) WHERE year = 2024"),
            &["01"],
        );
        fixture.check(
            &format!("SELECT count(DISTINCT filename) FROM read_{function}('{path}', filename = true)"),
            &["3"],
        );
    }
}

#[cfg(unix)]
#[test]
fn pipes_are_read_whatever_they_give() {
    let fixture = Fixture::new();
    let names = ["p.csv", "p.csv.gz", "p.tsv.zst", "p.json", "p.jsonl", "p.parquet", "p.arrow"];
    for name in names {
        let (path, pipe) = (fixture.path(name), fixture.path(&format!("pipe of {name}").replace('.', " ")));
        fixture.check(&format!("COPY ({EVERYTHING}) TO '{path}'"), &["3000"]);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let feed = || {
            let (path, pipe) = (path.clone(), pipe.clone());
            std::thread::spawn(move || fs::copy(path, pipe).unwrap())
        };
        let feeding = feed();
        fixture.check(&format!("SELECT count(*), max(big) FROM '{pipe}'"), &["3000|29990000000000"]);
        feeding.join().unwrap();
        let feeding = feed();
        fixture.check(&format!("SELECT max(big) FROM '{pipe}' WHERE big < 25"), &["0"]);
        feeding.join().unwrap();
    }
    fixture.check_error("FROM '/dev/null'", ErrorKind::Unsupported, &["/dev/null", "device"]);
}

#[test]
fn a_small_limit_gives_the_first_rows() {
    let fixture = Fixture::new();
    let mut text = "n\n".to_owned();
    (0..1_000_000).for_each(|n| text.push_str(&format!("{n}\n")));
    let path = fixture.write("many.csv", text);
    fixture.check(&format!("SELECT n FROM '{path}' LIMIT 3"), &["0", "1", "2"]);
    fixture.check(&format!("SELECT count(*), sum(n), min(n) FROM '{path}'"), &["1000000|499999500000|0"]);
}

#[test]
fn rows_come_in_the_order_of_the_files() {
    let fixture = Fixture::new();
    for name in ["o.csv", "o.jsonl", "o.arrow", "o.parquet", "o.csv.gz"] {
        let path = fixture.path(name);
        // Text that does not compress, so that the files are worth several threads.
        let copy = format!(
            "COPY (SELECT value AS n, md5(CAST(value AS VARCHAR)) AS t FROM range(0, 60000)) TO '{path}'"
        );
        fixture.check(&copy, &["60000"]);
        let rows = fixture.run(&format!("SELECT n FROM '{path}' WHERE n % 100 = 0"));
        let expected: Vec<_> = (0..600).map(|n| (n * 100).to_string()).collect();
        assert_eq!(rows, expected, "{name}");
    }
}

#[test]
fn a_file_that_is_replaced_is_read_again() {
    let fixture = Fixture::new();
    for extension in ["parquet", "jsonl", "csv"] {
        let (path, other) =
            (fixture.path(&format!("x.{extension}")), fixture.path(&format!("y.{extension}")));
        fixture.check(&format!("COPY (SELECT 1 AS a, 'x' AS b) TO '{path}'"), &["1"]);
        let query = format!("SELECT a, b, count(*) OVER () FROM '{path}'");
        fixture.check(&query, &["1|x|1"]);
        fixture.check(&query, &["1|x|1"]);
        // Of the same size, and with the same time of modification, as `cp -p` leaves it.
        fixture.check(&format!("COPY (SELECT 2 AS a, 'y' AS b) TO '{other}'"), &["1"]);
        assert_eq!(fs::metadata(&path).unwrap().len(), fs::metadata(&other).unwrap().len());
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
        fs::rename(&other, &path).unwrap();
        fixture.check(&query, &["2|y|1"]);
    }
}
