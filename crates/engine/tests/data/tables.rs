//! Real tables: taxi rides as Parquet and CSV, flights, case counts, an hour of GitHub.

use keirin::Database;
use keirin_testkit::data;
use keirin_testkit::results::{Tolerance, compare};

use crate::common::query;

/// Runs `sql` and expects the rows, numbers within rounding.
#[track_caller]
fn check(sql: &str, expected: &[&[&str]]) {
    let database = Database::in_memory().expect("a database opens");
    let rows = query(&database, &database.session(), sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let expected: Vec<Vec<String>> =
        expected.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
    if let Err(difference) = compare(&rows, &expected, Tolerance::ORDERED) {
        panic!("{sql}: {difference}");
    }
}

#[test]
fn taxi_months_as_csv_are_the_parquet_file() {
    let (Some(parquet), Some(pack)) = (data::file("yellow_2018_2019_240k.parquet"), data::pack("nyc_taxi"))
    else {
        return;
    };
    let database = Database::in_memory().expect("a database opens");
    let session = database.session();
    let months = pack.join("nyc_taxi/gx_yellow_10k/*.csv");
    let queries = [
        "SELECT count(*), count(passenger_count), count(congestion_surcharge) FROM t",
        "SELECT min(pickup_datetime), max(pickup_datetime), min(dropoff_datetime), max(dropoff_datetime) FROM t",
        "SELECT sum(trip_distance), sum(fare_amount), sum(tip_amount), sum(total_amount), sum(congestion_surcharge) FROM t",
        "SELECT passenger_count, avg(total_amount), count(*) FROM t GROUP BY 1 ORDER BY 1",
        "SELECT vendor_id, store_and_fwd_flag, payment_type, count(*), sum(tolls_amount) FROM t GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        "SELECT date_trunc('month', pickup_datetime), count(*), max(trip_distance) FROM t GROUP BY 1 ORDER BY 1",
        "SELECT pickup_location_id, count(DISTINCT dropoff_location_id) FROM t GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
        "SELECT * FROM t ORDER BY total_amount DESC, pickup_datetime, dropoff_datetime, trip_distance LIMIT 50",
    ];
    for sql in queries {
        let answer = |file: &std::path::Path| {
            let sql = sql.replace("FROM t", &format!("FROM '{}'", file.display()));
            query(&database, &session, &sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
        };
        if let Err(difference) = compare(&answer(&parquet), &answer(&months), Tolerance::ORDERED) {
            panic!("{sql}: Parquet and CSV differ: {difference}");
        }
    }
}

#[test]
fn a_compressed_csv_month_and_its_lookup_join() {
    let Some(pack) = data::pack("nyc_taxi") else { return };
    let directory = pack.join("nyc_taxi").display().to_string();
    check(
        &format!(
            "SELECT \"Borough\", count(*) FROM '{directory}/green_tripdata_2020-04.csv.gz' g \
             JOIN '{directory}/taxi_zone_lookup.csv' z ON g.\"PULocationID\" = z.\"LocationID\" \
             GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3"
        ),
        &[&["Manhattan", "16698"], &["Brooklyn", "8087"], &["Queens", "5404"]],
    );
}

#[test]
fn flights_are_summed() {
    let Some(pack) = data::pack("tables") else { return };
    let file = pack.join("nycflights13/flights.parquet").display().to_string();
    check(
        &format!(
            "SELECT count(*), count(dep_delay), sum(distance), min(carrier), max(tailnum) FROM '{file}'"
        ),
        &[&["336776", "328521", "350217607.0", "9E", "N9EAMQ"]],
    );
    check(
        &format!("SELECT origin, count(*), avg(arr_delay) FROM '{file}' GROUP BY origin ORDER BY origin"),
        &[
            &["EWR", "120835", "9.107054735458092"],
            &["JFK", "111279", "5.551481036679838"],
            &["LGA", "104662", "5.783488234130908"],
        ],
    );
}

#[test]
fn parts_of_a_table_are_one_table() {
    let Some(pack) = data::pack("tables") else { return };
    let directory = pack.join("covid_nyt").display().to_string();
    for files in ["", "/*.parquet"] {
        check(
            &format!(
                "SELECT count(*), min(date), max(date), sum(cases), count(DISTINCT county) FROM '{directory}{files}'"
            ),
            &[&["1111930", "2020-01-21", "2021-03-11", "3549814734", "1930"]],
        );
    }
}

#[test]
fn json_lines_have_nested_columns() {
    let Some(pack) = data::pack("tables") else { return };
    let file = pack.join("github_events/2015-01-01-0.json.gz").display().to_string();
    check(
        &format!(
            "SELECT type, count(*) AS events FROM '{file}' GROUP BY type ORDER BY events DESC, type LIMIT 5"
        ),
        &[
            &["PushEvent", "4280"],
            &["CreateEvent", "815"],
            &["IssueCommentEvent", "650"],
            &["WatchEvent", "642"],
            &["IssuesEvent", "373"],
        ],
    );
    check(
        &format!(
            "SELECT count(*), count(DISTINCT actor.login), count(org.id), min(created_at) FROM '{file}'"
        ),
        &[&["7702", "3648", "2342", "2015-01-01 00:00:00+00:00"]],
    );
}
