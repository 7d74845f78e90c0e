#!/usr/bin/env python3
"""Runs random SQL over random tables on Keirin, several ways, and on DuckDB, and reports where answers differ.

    venv/bin/python tests/differential/fuzz.py --keirin target/release/keirin --seed 7 --seconds 3600

Each round makes some tables (`tables.py`), on disk and in memory, and asks some queries of them (`queries.py`):
on disk and in memory, with and without keirin.fast_path, by 1, 2 and 16 threads. The answers must be DuckDB's, but for
the order of rows where nothing says it and the last digits of floats (`compare.py`); if one fails all must. Keirin
that dies, panics or does not answer is a difference, too.

What Keirin does otherwise by choice (docs/guide/differences.md) is never asked; the files that make tables,
expressions and queries say what that is.

A round depends on its seed only: `--seed N --rounds 1` is round N again, and round I of seed N is that of N + I. What
is found is made smaller by leaving out parts of the query, and printed with the tables it is about. `--keep` keeps the
files of such rounds and a script that makes their tables. The exit status is 1 if there was a difference.
"""

import argparse
import collections
import os
import random
import re
import shutil
import sys
import tempfile
import time

from compare import Comparison, canonical_rows
from engines import DuckDb, Failed, Keirin, for_duckdb, for_keirin
from expressions import Expressions
from queries import Queries, smaller
from tables import Table

THREADS = [1, 2, 16]
SMALLER_SECONDS = 20
WORDS = re.compile(r"\b[A-Z]+ JOIN\b|\bGROUP BY\b|\b(?:OVER|HAVING|LIMIT|DISTINCT|FILTER|CASE|IN|EXISTS|UNION|INTERSECT)\b|\w+(?=\()")


class Round:
    def __init__(self, options, seed, report):
        self.options, self.seed, self.report = options, seed, report
        self.random = random.Random(seed)
        self.directory = tempfile.mkdtemp(prefix="keirin-differential-")
        self.is_kept = False
        self.tables = [
            Table(self.random, f"r{number}", options.rows_max, self.directory)
            for number in range(self.random.choice([1, 2, 2, 3]))
        ]
        timeout = options.timeout
        self.duckdb = DuckDb(timeout)
        in_memory = [sql for table in self.tables for sql in table.memory]
        self.engines = {
            "disk": Keirin(options.keirin, os.path.join(self.directory, "database"), timeout),
            "memory": Keirin(options.keirin, None, timeout, in_memory),
        }
        self.pairs = {}  # what was counted

    def run(self, deadline):
        try:
            if self.load():
                queries = Queries(self.random, Expressions(self.random, self.tables, self.pair_count, self.most_equal))
                for _ in range(self.options.queries):
                    if time.monotonic() > deadline:
                        break
                    self.ask(queries.query())
        finally:
            for engine in self.engines.values():
                engine.stop()
            if self.is_kept and self.options.keep:
                self.keep()
            shutil.rmtree(self.directory)

    def load(self):
        """Makes the tables; whether all engines have the same rows."""
        for table in self.tables:
            for sql in table.duckdb:
                self.duckdb.run(sql)
        for name, engine in self.engines.items():
            for sql in [sql for table in self.tables for sql in (table.keirin if name == "disk" else [])]:
                try:
                    engine.run(sql)
                except Failed as failed:
                    self.found(f"{failed.kind} of a change", sql, f"{name}: {failed}")
                    return False
        for table in self.tables:
            sql = f"SELECT * FROM {table.name}"
            whole, types = self.duckdb.run(sql)
            for name, engine in self.engines.items():
                try:
                    difference = Comparison(whole, types).difference(engine.run(sql))
                except Failed as failed:
                    difference = f"{failed.kind}: {failed}"
                if difference:
                    self.found("tables differ", sql, f"{name}: {difference}")
                    return False
        return True

    def pair_count(self, left, one, right, two):
        """How many rows a join has; the same columns are asked for again and again."""
        key = left, one, right, two
        if key not in self.pairs:
            counts = [f"(SELECT {c} AS k, count(*) AS n FROM {t} GROUP BY k)" for t, c in ((left, one), (right, two))]
            sql = f"SELECT coalesce(sum(l.n * r.n), 0) FROM {counts[0]} l JOIN {counts[1]} r ON l.k = r.k"
            self.pairs[key] = int(self.duckdb.run(sql)[0][0][0])
        return self.pairs[key]

    def most_equal(self, table, column):
        """How many rows have the most frequent value."""
        key = table, column
        if key not in self.pairs:
            counts = f"SELECT count(*) AS n FROM {table} WHERE {column} IS NOT NULL GROUP BY {column}"
            self.pairs[key] = int(self.duckdb.run(f"SELECT coalesce(max(n), 0) FROM ({counts})")[0][0][0])
        return self.pairs[key]

    def ask(self, query):
        ways = [(where, path, self.random.choice(THREADS)) for where in self.engines for path in ("on", "off")]
        self.report.queries += 1
        found = self.difference(query, ways)
        if not found:
            return
        kind, _ = found
        # The same difference in the smallest query that shows it.
        end = time.monotonic() + SMALLER_SECONDS
        is_smaller = kind != "hang" and not self.report.is_known(kind)
        while is_smaller:
            is_smaller = False
            for less in smaller(query):
                if time.monotonic() > end:
                    break
                other = self.difference(less, ways)
                if other and (other[0] == kind or kind.startswith("wrong") and other[0].startswith("wrong")):
                    query, found, is_smaller = less, other, True
                    break
        kind, words = found
        if kind.startswith("wrong"):
            # What it is about tells one cause from another.
            kind += " " + " ".join(sorted(set(WORDS.findall(for_keirin(query.render())))))
        self.found(kind, query.render(), words)

    def difference(self, query, ways):
        """A kind of difference and what it is in words, or None."""
        sql = query.render()
        answers = {}
        for where, path, threads in ways:
            settings = f"SET keirin.fast_path = {path}; SET keirin.threads = {threads}; "
            way = f"{where}, fast_path {path}, {threads} threads"
            try:
                answers[way] = self.engines[where].run(settings + sql)
            except Failed as failed:
                if failed.kind == "hang":
                    return "hang", f"{way}: {failed}"
                answers[way] = failed
        try:
            whole, types = self.duckdb.run(query.render(whole=True))
            if query.is_ours():
                # DuckDB says the types only.
                own = "SET keirin.fast_path = off; SET keirin.threads = 1; "
                whole = self.engines["memory"].run(own + query.render(whole=True))
        except Failed as failed:
            whole, theirs = failed, f"{failed.kind}: {failed}"
        failures = {way: answer for way, answer in answers.items() if isinstance(answer, Failed)}
        bad = [failure.kind for failure in failures.values() if failure.kind != "error"]
        if isinstance(whole, Failed) and whole.kind != "error":
            return None  # DuckDB took too long.
        if failures and (bad or len(failures) < len(ways) or not isinstance(whole, Failed)):
            way, failure = next((way, f) for way, f in failures.items() if f.kind != "error" or not bad)
            others = "and nowhere else" if len(failures) < len(ways) else "everywhere"
            words = f"{failure.kind}: {shape_of(str(failure))}"
            return words, f"{', '.join(failures)} {others}: {failure}"
        if isinstance(whole, Failed):
            return None if failures else (f"error of DuckDB only: {shape_of(theirs)}", theirs)
        order = [query.place(item) for item, _ in query.order if query.place(item) is not None]
        limit = query.limit[0] if query.limit else None
        comparison = Comparison(whole, types, order, limit, query.offset[0] if query.offset else 0)
        wrong = {way: comparison.difference(rows) for way, rows in answers.items()}
        wrong = {way: words for way, words in wrong.items() if words}
        if not wrong:
            return None
        which = "all" if len(wrong) == len(ways) else "/".join(sorted({way.rsplit(", ", 1)[0] for way in wrong}))
        return f"wrong: {which}", "\n   ".join(f"{way}: {words}" for way, words in wrong.items())

    def found(self, kind, sql, words):
        self.is_kept = True
        if not self.report.count(kind):
            return
        print(f"== seed {self.seed}: {kind}")
        print(f"   {for_keirin(sql)}")
        if for_keirin(sql) != for_duckdb(sql):
            print(f"   DuckDB: {for_duckdb(sql)}")
        print(f"   {words[:1500]}")
        for table in self.tables:
            if re.search(rf"\b{table.name}\b", sql):
                print(f"   -- {table.rows} rows; {'; '.join(for_keirin(s)[:200] for s in table.keirin)}")
        sys.stdout.flush()

    def keep(self):
        target = os.path.join(self.options.keep, str(self.seed))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.directory, target, ignore=shutil.ignore_patterns("database"))
        for name, translate in (("keirin", for_keirin), ("duckdb", for_duckdb)):
            statements = [s for table in self.tables for s in getattr(table, name)]
            with open(os.path.join(target, f"{name}.sql"), "w", encoding="utf-8") as file:
                file.writelines(translate(s).replace(self.directory, target) + ";\n" for s in statements)


def shape_of(message):
    """The first line of a message without what depends on the query."""
    return re.sub(r"'[^']*'|`[^`]*`|[-\d.]+", "?", message.split("\n")[0])[:100]


class Report:
    """How many differences there are of each kind; of each a few are printed."""

    EXAMPLES = 2

    def __init__(self):
        self.queries, self.kinds = 0, collections.Counter()

    def is_known(self, kind):
        return self.kinds[kind] >= self.EXAMPLES

    def count(self, kind):
        self.kinds[kind] += 1
        return self.kinds[kind] <= self.EXAMPLES


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keirin", required=True, help="the program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10**9, help="each has tables of its own")
    parser.add_argument("--queries", type=int, default=100, help="of a round")
    parser.add_argument("--seconds", type=float, default=25, help="after which no query begins")
    parser.add_argument("--timeout", type=float, default=60, help="seconds after which a statement hangs")
    parser.add_argument("--rows-max", type=int, default=200_000, help="of a table")
    parser.add_argument("--keep", metavar="DIRECTORY", help="where the tables go for which answers differ")
    options = parser.parse_args()
    report, begin = Report(), time.monotonic()
    deadline, rounds = begin + options.seconds, 0
    try:
        while rounds < options.rounds and time.monotonic() < deadline:
            Round(options, options.seed + rounds, report).run(deadline)
            rounds += 1
    except KeyboardInterrupt:
        print("== interrupted")
    seconds = time.monotonic() - begin
    print(f"{report.queries} queries over the tables of {rounds} rounds from seed {options.seed} in {seconds:.0f} s")
    for kind, count in report.kinds.most_common():
        print(f"{count:6} {kind}")
    return 1 if report.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
