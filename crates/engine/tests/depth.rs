//! However deep a statement is nested, it has an answer or an error, on the small stack of a test's thread and on those of
//! the database.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use keirin::{Database, ErrorKind, Session};

/// What is nested `depth` times, as SQL.
type Nested = fn(usize) -> String;

/// Whatever has parts of its own kind.
const NESTED: &[(&str, Nested)] = &[
    ("IS NULL", |depth| format!("SELECT 1{}", " IS NULL".repeat(depth))),
    ("IS NOT TRUE", |depth| format!("SELECT true{}", " IS NOT TRUE".repeat(depth))),
    ("IS DISTINCT FROM", |depth| format!("SELECT true{}", " IS DISTINCT FROM false".repeat(depth))),
    ("bits", |depth| format!("SELECT 1{}", " | 1".repeat(depth))),
    ("shifts", |depth| format!("SELECT 1{}", " << 0".repeat(depth))),
    ("equations", |depth| format!("SELECT true{}", " = true".repeat(depth))),
    ("less than", |depth| format!("SELECT true{}", " < true".repeat(depth))),
    ("AND", |depth| format!("SELECT true{}", " AND true".repeat(depth))),
    ("OR", |depth| format!("SELECT false{}", " OR x = 1".repeat(depth)) + " FROM (SELECT 1 AS x)"),
    ("sums", |depth| format!("SELECT 0{}", " + 1".repeat(depth))),
    ("texts", |depth| format!("SELECT ''{}", " || 'a'".repeat(depth))),
    ("casts", |depth| format!("SELECT 1{}", "::INT".repeat(depth))),
    ("LIKE", |depth| format!("SELECT 'a'{}", " LIKE 'a'".repeat(depth))),
    ("NOT LIKE", |depth| format!("SELECT 'a'{}", " NOT LIKE 'a'".repeat(depth))),
    ("BETWEEN", |depth| format!("SELECT true{}", " BETWEEN false AND true".repeat(depth))),
    ("IN", |depth| format!("SELECT true{}", " IN (true)".repeat(depth))),
    ("COLLATE", |depth| format!("SELECT 'a'{}", " COLLATE utf8mb4_bin".repeat(depth))),
    ("AT TIME ZONE", |depth| {
        format!("SELECT TIMESTAMP '2020-01-01 00:00:00'{}", " AT TIME ZONE 'UTC'".repeat(depth))
    }),
    ("subscripts", |depth| format!("SELECT [1]{}", "[1]".repeat(depth))),
    ("fields", |depth| format!("SELECT a{}", ".b".repeat(depth))),
    ("fields of a value", |depth| format!("SELECT (a){}", ".b".repeat(depth))),
    ("NOT", |depth| format!("SELECT {} true", "NOT ".repeat(depth))),
    ("minus", |depth| format!("SELECT {} 1", "- ".repeat(depth))),
    ("plus", |depth| format!("SELECT {} 1", "+ ".repeat(depth))),
    ("INTERVAL", |depth| format!("SELECT {} '1 day'", "INTERVAL ".repeat(depth))),
    ("parentheses", |depth| format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth))),
    ("parentheses with operators", |depth| {
        format!("SELECT {}1{}", "(1 + 1 + ".repeat(depth), ")".repeat(depth))
    }),
    ("CASE", |depth| format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(depth), " END".repeat(depth))),
    ("WHEN", |depth| format!("SELECT CASE 1{} END", " WHEN 2 THEN 3".repeat(depth))),
    ("functions", |depth| format!("SELECT {}1{}", "abs(".repeat(depth), ")".repeat(depth))),
    ("functions that are written out", |depth| {
        format!("SELECT {}1{}", "sign(".repeat(depth), ")".repeat(depth))
    }),
    ("functions that double", |depth| format!("SELECT {}1{}", "div(".repeat(depth), ", 1)".repeat(depth))),
    ("functions that double both", |depth| {
        format!("SELECT {}'a'{}", "locate('a', ".repeat(depth), ", 1)".repeat(depth))
    }),
    ("scalar subqueries", |depth| format!("SELECT {}1{}", "(SELECT ".repeat(depth), ")".repeat(depth))),
    ("EXISTS", |depth| {
        format!("SELECT 1 WHERE {}true{}", "EXISTS (SELECT 1 WHERE ".repeat(depth), ")".repeat(depth))
    }),
    ("lists", |depth| format!("SELECT {}1{}", "[".repeat(depth), "]".repeat(depth))),
    ("structs", |depth| format!("SELECT {}1{}", "{'a': ".repeat(depth), "}".repeat(depth))),
    ("array types", |depth| format!("SELECT NULL::INT{}", "[]".repeat(depth))),
    ("array types in brackets", |depth| {
        format!("SELECT NULL::{}INT{}", "ARRAY<".repeat(depth), ">".repeat(depth))
    }),
    ("struct types", |depth| {
        format!("SELECT NULL::{}INT{}", "STRUCT(b INT, a ".repeat(depth), ")".repeat(depth))
    }),
    ("types of columns", |depth| format!("CREATE TABLE deep (a INT{})", "[]".repeat(depth))),
    ("defaults", |depth| format!("CREATE TABLE deep (a INT DEFAULT 1{})", " + 1".repeat(depth))),
    ("JOIN", |depth| format!("SELECT count(*) FROM numbers{}", named(depth, " CROSS JOIN numbers"))),
    ("JOIN ON", |depth| {
        let joins = (0..depth).map(|number| format!(" JOIN numbers t{number} ON t{number}.a = numbers.a"));
        format!("SELECT count(*) FROM numbers{}", joins.collect::<String>())
    }),
    ("joined with commas", |depth| format!("SELECT count(*) FROM numbers{}", named(depth, ", numbers"))),
    ("UNION", |depth| format!("SELECT 1{}", " UNION SELECT 1".repeat(depth))),
    ("UNION ALL", |depth| format!("SELECT 1, 2{}", " UNION ALL SELECT 1, 2".repeat(depth))),
    ("EXCEPT", |depth| format!("SELECT 1{}", " EXCEPT SELECT 2".repeat(depth))),
    ("set operations in turn", |depth| {
        format!("SELECT 1{}", " UNION ALL SELECT 1 UNION SELECT 1".repeat(depth / 2))
    }),
    ("UNION inside", |depth| format!("SELECT 1{}{}", " UNION (SELECT 1".repeat(depth), ")".repeat(depth))),
    ("FROM", |depth| {
        format!("SELECT * FROM {}SELECT 1{}", "(SELECT * FROM (".repeat(depth), "))".repeat(depth))
    }),
    ("FROM with names", |depth| {
        format!("SELECT * FROM {}SELECT 1 AS a{}", "(SELECT a FROM (".repeat(depth), ") AS t)".repeat(depth))
    }),
    ("joins inside", |depth| {
        let joins = (0..depth).map(|number| format!(" CROSS JOIN numbers t{number})"));
        format!("SELECT 1 FROM {}numbers{}", "(".repeat(depth), joins.collect::<String>())
    }),
    ("WITH inside", |depth| {
        format!("{}SELECT 1{}", "WITH q AS (".repeat(depth), ") SELECT * FROM q".repeat(depth))
    }),
    ("WITH of WITH", |depth| {
        let queries: Vec<String> =
            (1..=depth).map(|number| format!("q{number} AS (SELECT * FROM q{})", number - 1)).collect();
        format!("WITH q0 AS (SELECT 1), {} SELECT * FROM q{depth}", queries.join(", "))
    }),
    ("WITH that doubles", |depth| {
        let queries: Vec<String> = (1..=depth)
            .map(|number| format!("q{number} AS (SELECT 1 FROM q{0} a CROSS JOIN q{0} b)", number - 1))
            .collect();
        format!("WITH q0 AS (SELECT 1), {} SELECT count(*) FROM q{depth}", queries.join(", "))
    }),
    ("GROUP BY", |depth| format!("SELECT 1 FROM (SELECT 1 AS a) GROUP BY a{}", " + 1".repeat(depth))),
    ("ORDER BY", |depth| format!("SELECT a FROM (SELECT 1 AS a) ORDER BY a{}", " + 1".repeat(depth))),
    ("WHERE", |depth| {
        format!("SELECT a FROM (SELECT 1 AS a) WHERE a{}", " + 1 > 0 AND a".repeat(depth)) + " > 0"
    }),
    ("EXPLAIN", |depth| format!("{}SELECT 1", "EXPLAIN ".repeat(depth))),
    ("PREPARE", |depth| format!("{}SELECT 1", "PREPARE p AS ".repeat(depth))),
    ("pipes", |depth| format!("SELECT 1 AS a{}", " |> WHERE true".repeat(depth))),
    ("VALUES", |depth| format!("VALUES (1){}", ", (1)".repeat(depth))),
    ("INSERT", |depth| format!("INSERT INTO numbers VALUES (1){}", ", (-1)".repeat(depth))),
    ("UPDATE", |depth| format!("UPDATE numbers SET a = a{}", " + 0".repeat(depth))),
    ("DELETE", |depth| format!("DELETE FROM numbers WHERE a IS NULL{}", " IS NULL".repeat(depth))),
    ("types that are none", |depth| format!("SELECT {}1", "a < ".repeat(depth))),
    ("comparisons with names of types", |depth| format!("SELECT {}1", "array < 1 AND ".repeat(depth))),
    ("what is not closed", |depth| format!("SELECT {}", "(".repeat(depth))),
    ("what is not opened", |depth| format!("SELECT 1 {}", ")".repeat(depth))),
    ("keywords as names", |depth| format!("SELECT 1{}", " + then".repeat(depth))),
];

/// `numbers` as often, each by a name of its own.
fn named(count: usize, joined: &str) -> String {
    (0..count).map(|number| format!("{joined} t{number}")).collect()
}

async fn run(session: &Session, sql: &str) -> Result<usize, keirin::Error> {
    let mut rows = 0;
    for statement in keirin::parse(sql)? {
        let batches = session.run(&statement, keirin::Parameters::None).await?.collect().await?;
        rows += batches.iter().map(|batch| batch.num_rows()).sum::<usize>();
    }
    Ok(rows)
}

fn nest(depth: usize, is_tried: impl Fn(&str) -> bool) {
    let database = Database::builder().threads(2).in_memory().unwrap();
    let session = database.session();
    database.block_on(async {
        run(&session, "CREATE TABLE numbers (a BIGINT); INSERT INTO numbers VALUES (1)").await.unwrap();
        for (name, nested) in NESTED.iter().filter(|(name, _)| is_tried(name)) {
            if let Err(error) = run(&session, &nested(depth)).await {
                assert_ne!(error.kind(), ErrorKind::Internal, "{name} nested {depth} times: {error}");
                assert!(error.message().len() < 500, "{name} nested {depth} times: {error}");
                assert!(!error.message().contains("span: Span("), "{name} nested {depth} times: {error}");
            }
        }
    });
}

#[test]
fn a_little() {
    nest(5, |_| true);
}

/// What the planner takes long for is not nested as deep as it may be: its time is not what is tried here.
#[test]
fn almost_too_deep() {
    nest(990, |name| ["IS NULL", "IS NOT TRUE", "BETWEEN", "casts", "DELETE", "EXPLAIN"].contains(&name));
}

#[test]
fn unions_in_a_row_are_not_deep() {
    nest(300, |name| name == "UNION ALL");
}

#[test]
fn beyond_the_limit() {
    nest(1_010, |name| !["INSERT", "VALUES", "UNION", "UNION ALL"].contains(&name));
}

#[test]
fn far_too_deep() {
    nest(30_000, |name| !["INSERT", "VALUES"].contains(&name));
}

#[test]
fn long_lists_are_not_deep() {
    nest(5_000, |name| ["INSERT", "VALUES"].contains(&name));
}

#[test]
fn views_of_views_have_an_end() {
    let database = Database::builder().threads(2).in_memory().unwrap();
    let session = database.session();
    database.block_on(async {
        let eighty = |view: &str| vec![format!("SELECT a FROM {view}"); 80].join(" UNION ALL ");
        run(&session, "CREATE VIEW one AS SELECT 1 AS a").await.unwrap();
        run(&session, &format!("CREATE VIEW many AS {}", eighty("one"))).await.unwrap();
        let error = run(&session, &eighty("many")).await.unwrap_err();
        assert!(error.message().contains("reads too many views"), "{error}");
    });
}
