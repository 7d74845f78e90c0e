//! Words that are coloured and completed as keywords.

/// In alphabetical order, for the search.
const KEYWORDS: &[&str] = &[
    "ALL",
    "ALTER",
    "ANALYZE",
    "AND",
    "ANTI",
    "ANY",
    "ARRAY",
    "AS",
    "ASC",
    "BEGIN",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "CASE",
    "CAST",
    "COLLATE",
    "COLUMN",
    "COLUMNS",
    "COMMIT",
    "COPY",
    "CREATE",
    "CROSS",
    "CUBE",
    "CURRENT",
    "DATE",
    "DECIMAL",
    "DEFAULT",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DOUBLE",
    "DROP",
    "ELSE",
    "END",
    "ESCAPE",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTRACT",
    "FALSE",
    "FETCH",
    "FILTER",
    "FIRST",
    "FLOAT",
    "FOLLOWING",
    "FOR",
    "FORMAT",
    "FROM",
    "FULL",
    "FUNCTION",
    "FUNCTIONS",
    "GLOBAL",
    "GROUP",
    "GROUPING",
    "HAVING",
    "IF",
    "ILIKE",
    "IN",
    "INNER",
    "INSERT",
    "INT",
    "INTEGER",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "LAST",
    "LATERAL",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NATURAL",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "PRECEDING",
    "QUALIFY",
    "RANGE",
    "REAL",
    "RECURSIVE",
    "REPLACE",
    "RESET",
    "RIGHT",
    "ROLLBACK",
    "ROLLUP",
    "ROW",
    "ROWS",
    "SELECT",
    "SEMI",
    "SET",
    "SETS",
    "SHOW",
    "SMALLINT",
    "SUMMARIZE",
    "TABLE",
    "TABLES",
    "TABLESAMPLE",
    "TEMPORARY",
    "THEN",
    "TIME",
    "TIMESTAMP",
    "TINYINT",
    "TO",
    "TRUE",
    "TRUNCATE",
    "UNBOUNDED",
    "UNION",
    "UNIQUE",
    "UNNEST",
    "UPDATE",
    "USING",
    "VALUES",
    "VARCHAR",
    "VIEW",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
    "WITHIN",
];

pub(crate) fn is_keyword(word: &str) -> bool {
    KEYWORDS.binary_search(&word.to_ascii_uppercase().as_str()).is_ok()
}

/// The keywords that begin with `prefix`, in its case.
pub(crate) fn completions(prefix: &str) -> impl Iterator<Item = String> {
    let upper = prefix.to_ascii_uppercase();
    let lower = prefix.chars().next().is_some_and(char::is_lowercase);
    KEYWORDS
        .iter()
        .filter(move |keyword| keyword.starts_with(&upper))
        .map(move |keyword| if lower { keyword.to_ascii_lowercase() } else { (*keyword).to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_in_order_for_the_search() {
        assert!(KEYWORDS.is_sorted());
        assert!(is_keyword("select") && !is_keyword("selec"));
        assert_eq!(completions("whe").collect::<Vec<_>>(), ["when", "where"]);
        assert_eq!(completions("WHE").collect::<Vec<_>>(), ["WHEN", "WHERE"]);
    }
}
