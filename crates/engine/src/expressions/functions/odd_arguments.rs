//! Calls every function with odd arguments: it must return a result or a proper error, not an internal one.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::{Database, ErrorKind};

/// Edge cases of each type, and NULL.
const VALUES: &[&str] = &[
    "NULL",
    "CAST(NULL AS BIGINT)",
    "CAST(NULL AS VARCHAR)",
    "CAST(NULL AS DOUBLE)",
    "CAST(NULL AS INT[])",
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "CAST(-128 AS TINYINT)",
    "CAST(18446744073709551615 AS BIGINT UNSIGNED)",
    "0.0",
    "1e308",
    "CAST('NaN' AS DOUBLE)",
    "CAST('-inf' AS DOUBLE)",
    "CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0))",
    "CAST(-1.5 AS DECIMAL(10, 2))",
    "''",
    "'abc'",
    "'ü€𐍈'",
    "'%Y-%m-%d'",
    "'day'",
    "'[('",
    "true",
    "DATE '2020-02-29'",
    "TIMESTAMP '1969-12-31 23:59:59.999999'",
    "TIME '23:59:59'",
    "INTERVAL '-1 month 1 day'",
    "X'00ff'",
    "[]",
    "[1, NULL, -1]",
    "['b', 'a', NULL]",
    "[1.5, CAST('NaN' AS DOUBLE)]",
    "[[1, 2], NULL, []]",
    "{'a': 1, 'b': NULL}",
    "MAP(['k'], [1])",
    "MAP([[1]], [NULL])",
];

/// Functions left out because their correct result may take all memory, or forever.
const AT_THE_USERS_RISK: &[&str] = &[];

/// A random generator for arguments that yields the same sequence each time.
struct Choice(u64);

impl Choice {
    fn below(&mut self, limit: usize) -> usize {
        // Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = u128::from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)) * limit as u128;
        usize::try_from(high >> 64).unwrap_or_default()
    }
}

fn all_names() -> Vec<&'static str> {
    let mut names: Vec<_> = super::names().iter().map(String::as_str).collect();
    names.retain(|name| !AT_THE_USERS_RISK.contains(name));
    names.sort_unstable();
    names
}

/// A statement that calls a function with constants, or with columns of two rows, there sometimes as a window
/// function.
fn statement(name: &str, arity: usize, choice: &mut Choice) -> String {
    let columns: Vec<String> = (0..arity).map(|place| format!("c{place}")).collect();
    let values: Vec<&str> = (0..arity).map(|_| VALUES[choice.below(VALUES.len())]).collect();
    if choice.below(2) == 0 || arity == 0 {
        return format!("SELECT {name}({})", values.join(", "));
    }
    let mut rows = format!("SELECT 0 AS row, {}", named(&values, &columns));
    let _ = write!(rows, " UNION ALL SELECT 1, {}", vec!["NULL"; arity].join(", "));
    let over = if choice.below(8) == 0 { " OVER (ORDER BY row ROWS 1 PRECEDING)" } else { "" };
    format!("SELECT {name}({}){over} FROM ({rows})", columns.join(", "))
}

fn named(values: &[&str], columns: &[String]) -> String {
    let pairs = values.iter().zip(columns).map(|(value, column)| format!("{value} AS {column}"));
    pairs.collect::<Vec<_>>().join(", ")
}

#[test]
fn functions_take_odd_arguments() {
    const STATEMENTS_EACH: usize = 4;
    // More rounds for a thorough search; these run up to an hour.
    let rounds = std::env::var("KEIRIN_ODD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let time_max = Duration::from_secs(if rounds > 1 { 3600 } else { 30 });
    let database =
        Database::builder().threads(1).memory_limit_bytes(256 << 20).in_memory().expect("a database opens");
    let session = database.session();
    let (started, mut wrong) = (Instant::now(), Vec::new());
    let names = all_names();
    'rounds: for round in 0..rounds * STATEMENTS_EACH {
        let mut choice = Choice(0x9E37_79B9_7F4A_7C15 ^ (round as u64 + 1));
        for name in &names {
            if started.elapsed() > time_max {
                break 'rounds;
            }
            let arity = [1, 2, 1, 3, 2, 0, 2, 4][round % 8];
            let sql = statement(name, arity, &mut choice);
            // Shows the culprit if the process aborts.
            println!("{sql}");
            let outcome = database.block_on(async { session.sql(&sql).await?.collect().await });
            if let Err(error) = outcome
                && error.kind() == ErrorKind::Internal
            {
                wrong.push(format!("{sql}: {error} ({})", error.detail().unwrap_or_default()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
