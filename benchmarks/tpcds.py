#!/usr/bin/env python3
"""The 99 queries of TPC-DS on Keirin and DuckDB: the same answers, and how long both take. These are no TPC results.

    python3 -m venv /tmp/tpcds && /tmp/tpcds/bin/pip install duckdb-extension-tpcds
    /tmp/tpcds/bin/python benchmarks/tpcds.py target/release/keirin WORK [--scale 1] [--queries 4,67] [--runs 3]

Queries and data come from DuckDB's extension `tpcds`, which the package installs beside the DuckDB that it is made
for; WORK keeps the tables, as Parquet and in both databases. Both have two threads on two cores. Of Keirin the least
of the runs behind the first counts, which may find its plan; of DuckDB the last. Rows are compared as a multiset,
numbers within 1e-6 of the larger.
The exit status is 1 when an answer differs or there is none.
"""

import argparse
import csv
import glob
import io
import math
import os
import re
import site
import subprocess
import sys
import time

import duckdb


def connect(path=":memory:"):
    connection = duckdb.connect(path, config={"allow_unsigned_extensions": "true", "threads": 2})
    for folder in site.getsitepackages():
        for extension in glob.glob(f"{folder}/duckdb_extension_tpcds/**/tpcds.duckdb_extension", recursive=True):
            connection.execute(f"LOAD '{extension}'")
            return connection
    sys.exit("the package duckdb-extension-tpcds is not installed here")


def make_tables(keirin, work, scale):
    """Parquet files, a directory of Keirin's and a file of DuckDB's, if they are not there."""
    files, own, other = f"{work}/parquet", f"{work}/keirin", f"{work}/duckdb.db"
    if not os.path.exists(files):
        connection = connect()
        connection.execute(f"CALL dsdgen(sf = {scale})")
        os.makedirs(files)
        for (table,) in connection.execute("SHOW TABLES").fetchall():
            connection.execute(f"COPY {table} TO '{files}/{table}.parquet'")
    create = [
        f"CREATE TABLE {name.removesuffix('.parquet')} AS SELECT * FROM '{files}/{name}'"
        for name in sorted(os.listdir(files))
    ]
    if not os.path.exists(own):
        subprocess.run([keirin, own], input=";\n".join(create) + ";\n", text=True, check=True)
    if not os.path.exists(other):
        connection = connect(other)
        for statement in create:
            connection.execute(statement)
        connection.close()
    return own, connect(other)


def comparable(value):
    if value is None or value == "":
        return ("", 0.0)
    try:
        return ("", float(str(value)))
    except ValueError:
        return (str(value).strip(), 0.0)


def is_same(ours, theirs):
    def near(one, other):
        return one[0] == other[0] and abs(one[1] - other[1]) <= 1e-6 * max(1.0, abs(one[1]), abs(other[1]))

    if len(ours) != len(theirs):
        return False
    both = [sorted([comparable(value) for value in row] for row in rows) for rows in (ours, theirs)]
    return all(len(a) == len(b) and all(map(near, a, b)) for a, b in zip(*both))


def run_keirin(keirin, database, query, runs):
    """The rows, and the least milliseconds of the runs behind the first; None and what it says."""
    one_line = " ".join(re.sub(r"--.*", "", query).split())
    command = [keirin, database, "--readonly", "--threads", "2", "--format", "csv"]
    script = ".timer on\n" + f"{one_line};\n" * runs
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=600)
    times = [
        float(number) * {"s": 1000, "ms": 1}[unit]
        for number, unit in re.findall(r"rows? in ([\d.]+) (s|ms)", done.stderr)
    ]
    if len(times) < runs:
        return None, done.stderr.strip()
    rows = list(csv.reader(io.StringIO(done.stdout)))
    return rows[1 : len(rows) // runs], min(times[1:] or times)


def run_duckdb(connection, query, runs):
    for _ in range(runs):
        started = time.perf_counter()
        rows = connection.execute(query).fetchall()
        took = 1000 * (time.perf_counter() - started)
    return rows, took


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("keirin")
    arguments.add_argument("work")
    arguments.add_argument("--scale", type=float, default=1)
    arguments.add_argument("--queries", default="")
    arguments.add_argument("--runs", type=int, default=3)
    options = arguments.parse_args()
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
    database, connection = make_tables(options.keirin, options.work, options.scale)
    queries = dict(connection.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall())
    chosen = [int(number) for number in options.queries.split(",") if number] or sorted(queries)
    wrong, pairs = [], []
    print(f"{'tpcds, ms':<10}{'keirin':>10}{'duckdb':>10}")
    for number in chosen:
        query = queries[number].strip().rstrip(";")
        ours, took = run_keirin(options.keirin, database, query, options.runs)
        theirs, theirs_took = run_duckdb(connection, query, options.runs)
        if ours is None or not is_same(ours, theirs):
            wrong.append(number)
            print(f"q{number:02}  {took if ours is None else 'another answer'}", flush=True)
            continue
        pairs.append((took, theirs_took))
        print(f"q{number:02}{took:>17.1f}{theirs_took:>10.1f}", flush=True)
    if pairs:
        totals = [sum(pair[side] for pair in pairs) for side in (0, 1)]
        means = [math.exp(sum(math.log(max(pair[side], 0.1)) for pair in pairs) / len(pairs)) for side in (0, 1)]
        print(f"{'total':<10}{totals[0]:>10.0f}{totals[1]:>10.0f}")
        print(f"{'geomean':<10}{means[0]:>10.1f}{means[1]:>10.1f}")
    print(f"{len(pairs)} of {len(chosen)} answers are the same")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
