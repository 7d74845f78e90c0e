#!/usr/bin/env python3
"""Compares the answers of Keirin and DuckDB to the 43 ClickBench queries over 9,580 real rows.

    python3 -m venv venv && venv/bin/pip install duckdb
    venv/bin/python tests/compare/clickbench.py --keirin target/release/keirin --data DIRECTORY

DIRECTORY is pack `clickbench` of KEIRIN_DATA, unpacked. Ties aside: each query runs with and without its
LIMIT. Without, the answers must be the same rows; with, both must have as many rows, all of them from the
whole answer, with the same values in the columns that it is ordered by.
"""

import argparse
import collections
import datetime
import decimal
import json
import pathlib
import re
import subprocess
import sys

LIMIT = re.compile(r"\s+LIMIT\s+\d+(\s+OFFSET\s+\d+)?\s*$", re.IGNORECASE)
ORDER = re.compile(r"\sORDER\s+BY\s+(.*)$", re.IGNORECASE)


def normal(value):
    """One spelling for a value, whichever way it came."""
    if isinstance(value, (float, decimal.Decimal)):
        return float(f"{float(value):.9g}")
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat().replace("T", " ")
    if isinstance(value, str):
        return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)$", r"\1 \2", value)
    return value


def rows_of_keirin(binary, view, sql):
    command = [binary, "--format", "json", "-c", f"{view}; {sql}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return [tuple(normal(value) for value in row.values()) for row in json.loads(done.stdout or "[]")]


def rows_of_duckdb(connection, sql):
    cursor = connection.execute(sql.replace("octet_length(", "strlen("))
    return [tuple(normal(value) for value in row) for row in cursor.fetchall()], [c[0] for c in cursor.description]


def order_columns(sql, names):
    """Positions of those columns of the answer that it is ordered by, as far as they are in it."""
    order = ORDER.search(LIMIT.sub("", sql))
    if not order:
        return []
    keys = [re.sub(r"\s+(ASC|DESC)$", "", key.strip(), flags=re.IGNORECASE) for key in order[1].split(",")]
    names = [name.lower() for name in names]
    wanted = [key.strip('"').lower().replace("count(*)", "count_star()") for key in keys]
    return [names.index(key) for key in wanted if key in names]


def compare(sql, keirin, duckdb):
    """What differs, in words; nothing if nothing does."""
    whole = LIMIT.sub("", sql)
    ours, (theirs, names) = keirin(whole), duckdb(whole)
    if collections.Counter(ours) != collections.Counter(theirs):
        missing = collections.Counter(theirs) - collections.Counter(ours)
        extra = collections.Counter(ours) - collections.Counter(theirs)
        return f"{len(ours)} rows against {len(theirs)}; missing {list(missing)[:2]}, extra {list(extra)[:2]}"
    if whole == sql:
        return None
    ours, (theirs, _) = keirin(sql), duckdb(sql)
    if len(ours) != len(theirs):
        return f"with LIMIT, {len(ours)} rows against {len(theirs)}"
    if collections.Counter(ours) - collections.Counter(keirin(whole)):
        return "with LIMIT, rows that the whole answer does not have"
    for column in order_columns(sql, names):
        if [row[column] for row in ours] != [row[column] for row in theirs]:
            return f"with LIMIT, other values of {names[column]}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keirin", required=True, help="the program")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="pack clickbench, unpacked")
    arguments = parser.parse_args()
    import duckdb as duckdb_module

    root = arguments.data
    if (root / "clickbench").is_dir():
        root = root / "clickbench"
    file = root / "hits_9580_typed.parquet"
    view = f"CREATE VIEW hits AS SELECT * FROM '{file}'"
    connection = duckdb_module.connect()
    connection.execute(view)
    queries = (root / "official/datafusion/queries.sql").read_text().splitlines()
    wrong = 0
    for number, line in enumerate((line for line in queries if line.strip()), start=1):
        # Our rows have the time as a timestamp, and are fewer.
        sql = line.strip().rstrip(";").replace('to_timestamp_seconds("EventTime")', '"EventTime"')
        sql = sql.replace("> 100000", "> 10")
        try:
            difference = compare(
                sql,
                lambda text: rows_of_keirin(arguments.keirin, view, text),
                lambda text: rows_of_duckdb(connection, text),
            )
        except (RuntimeError, subprocess.TimeoutExpired, duckdb_module.Error, ValueError) as error:
            difference = str(error)
        if difference:
            wrong += 1
            print(f"q{number:02}: {difference}\n     {sql}")
    print(f"{43 - wrong} of 43 queries agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
