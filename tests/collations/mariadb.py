"""Compares by collations as a live MariaDB does: random queries over nasty texts, answered by both.

    benchmarks/.venv/bin/pip install pymysql
    benchmarks/.venv/bin/python tests/collations/mariadb.py --keirin target/release/keirin --queries 10000

Needs mariadbd (Debian: mariadb-server), which it starts in a folder of its own, without a network.

Spaces at the end count as MariaDB has them (`collation_pad_order = 'mysql'`); with `--order tidb` as TiDB has them, and no
text has a character below a space, where the two differ. Where MariaDB contradicts itself nothing is asked: it hashes
texts that it takes as equal differently if they end in other spaces than U+0020, under `unicode_ci`.
"""

import argparse
import csv
import io
import os
import random
import subprocess
import sys
import tempfile
import time

COLLATIONS = ["utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci"]
ATOMS = [
    "a", "A", "b", "B", "z", "Z", "s", "S", "ss", "ß", "é", "e", "E", "É", "e\u0301", "æ", "ae", "Й", "й", "и", "И", "ф",
    "0", "1", "9", "-", "_", "%", "|", "'", " ", "  ", "\u00a0", "\u3000", "\u200d", "ー", "か", "が", "カ", "中", "国", "각",
    "😀", "😃", "ﬀ", "ff", "Ω", "ω", "Σ", "σ", "ς", "ǅ", "İ", "ı", "i", "I", "\t", "\n", "\x01",
]
SPACES = "\u00a0\u3000\u2000\u202f\u205f"


def text(random, order):
    atoms = [a for a in ATOMS if order == "mysql" or a >= " "]
    return "".join(random.choice(atoms) for _ in range(random.choice([0, 1, 1, 2, 2, 3, 4])))


def quoted(value):
    return "'" + value.replace("'", "''") + "'"


def pattern(random, value):
    """A pattern that matches now and then."""
    out = ""
    for char in value:
        kind = random.random()
        if char in "%_|":
            out += "|" + char if kind < 0.7 else char
        elif kind < 0.2:
            out += "_"
        elif kind < 0.35:
            out += "%"
        elif kind < 0.45:
            out += char.swapcase() if len(char.swapcase()) == 1 else char
        else:
            out += char
    if out.endswith("|") and not out.endswith("||"):
        out += "|"
    return random.choice(["", "%"]) + out + random.choice(["", "%"])


def query(random, texts, order):
    number = random.randrange(len(COLLATIONS))
    column = f"c{number}"
    lit = lambda: quoted(random.choice(texts) if random.random() < 0.7 else text(random, order))
    compare = random.choice(["=", "<>", "<", "<=", ">", ">="])
    kinds = {
        "constant": lambda: f"SELECT id FROM t WHERE {column} {compare} {lit()} ORDER BY id",
        "columns": lambda: f"SELECT count(*), sum(a.id) FROM t a, t b WHERE a.{column} {compare} b.{column} AND b.id < 9",
        "in": lambda: f"SELECT id FROM t WHERE {column} {random.choice(['', 'NOT '])}IN ({lit()}, {lit()}, {lit()}) ORDER BY id",
        "between": lambda: f"SELECT id FROM t WHERE {column} BETWEEN {lit()} AND {lit()} ORDER BY id",
        "case": lambda: f"SELECT id, CASE {column} WHEN {lit()} THEN 1 WHEN {lit()} THEN 2 END FROM t ORDER BY id",
        "like": lambda: f"SELECT id FROM t WHERE {column} {random.choice(['', 'NOT '])}LIKE "
        f"{quoted(pattern(random, random.choice(texts)))} ESCAPE '|' ORDER BY id",
        "order": lambda: f"SELECT id FROM t WHERE {column} IS NOT NULL AND id % {random.randrange(1, 4)} = 0 ORDER BY {column} {random.choice(['', 'DESC'])}, id",
        "top": lambda: f"SELECT id FROM t WHERE {column} IS NOT NULL ORDER BY {column}, id LIMIT {random.randrange(1, 20)}",
        "smallest": lambda: f"SELECT min(id), count(*) FROM t WHERE {column} = (SELECT {random.choice(['min', 'max'])}({column}) "
        f"FROM t WHERE id > {random.randrange(100)})",
        "strcmp": lambda: f"SELECT id, strcmp({column}, {lit()}) FROM t ORDER BY id",
        "greatest": lambda: f"SELECT id, strcmp(greatest({column}, {lit()}), {column}) FROM t ORDER BY id",
        "nullif": lambda: f"SELECT id, nullif({column}, {lit()}) IS NULL FROM t ORDER BY id",
    }
    # By hashes: where MariaDB agrees with itself.
    hashed = {
        "group": lambda: f"SELECT min(id), count(*) FROM t WHERE {{}} GROUP BY {column} ORDER BY 1",
        "distinct": lambda: f"SELECT count(DISTINCT {column}) FROM t WHERE {{}}",
        "join": lambda: f"SELECT a.id, count(*) FROM t a JOIN t b ON a.{column} = b.{column} WHERE {{a}} AND {{b}} GROUP BY a.id ORDER BY 1",
        "semi": lambda: f"SELECT id FROM t WHERE {{}} AND {column} IN (SELECT {column} FROM t WHERE {{}} AND id % 3 = 1) ORDER BY id",
        "anti": lambda: f"SELECT id FROM t a WHERE {{a}} AND NOT EXISTS (SELECT 1 FROM t b WHERE {{b}} AND b.{column} = a.{column} "
        f"AND b.id < a.id) ORDER BY id",
        "union": lambda: f"SELECT count(*) FROM (SELECT {column} c FROM t WHERE {{}} AND id % 2 = 0 UNION SELECT {column} FROM t WHERE {{}}) u",
    }
    kind = random.choice([*kinds, *hashed])
    if kind in kinds:
        return kind, number, kinds[kind]()
    fit = lambda name: f"{name}fit = 1" if number == 2 else f"{name}id > 0"
    made = hashed[kind]()
    made = made.replace("{a}", fit("a.")).replace("{b}", fit("b.")).replace("{}", fit(""))
    return kind, number, made


class Maria:
    def __init__(self, folder):
        import pymysql

        data, socket = os.path.join(folder, "data"), os.path.join(folder, "socket")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        user = ["--user=root"] if os.getuid() == 0 else []
        subprocess.run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", *user,
                        "--auth-root-authentication-method=normal"], check=True, **quiet)
        self.server = subprocess.Popen(["mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket}", *user,
                                        "--skip-networking", f"--pid-file={folder}/pid"], **quiet)
        for _ in range(300):
            try:
                self.connection = pymysql.connect(unix_socket=socket, user="root", charset="utf8mb4", autocommit=True)
                break
            except pymysql.err.OperationalError:
                time.sleep(0.1)
        else:
            sys.exit("mariadbd does not start")
        for statement in ["CREATE DATABASE d CHARACTER SET utf8mb4", "USE d", "SET sql_mode = 'NO_BACKSLASH_ESCAPES'"]:
            self.run(statement)

    def run(self, sql):
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return [[None if value is None else str(value) for value in row] for row in cursor.fetchall()]


class Keirin:
    END = "end of answer"

    def __init__(self, binary):
        command = [binary, "--no-progress", "--format", "csv"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, encoding="utf-8")

    def run(self, sql):
        self.process.stdin.write(f"{sql};\nSELECT '{self.END}' AS x;\n")
        self.process.stdin.flush()
        lines = []
        while True:
            line = self.process.stdout.readline()
            if not line:
                sys.exit(f"Keirin died of: {sql}")
            lines.append(line)
            if line.rstrip("\n") == self.END:
                break
        rows = list(csv.reader(io.StringIO("".join(lines[:-2]))))
        if rows and rows[0] and rows[0][0].startswith(("error", "Error")):
            return "".join(lines[:-2])
        truth = {"true": "1", "false": "0", "": None}
        return [[truth.get(value, value) for value in row] for row in rows[1:]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keirin", default="target/release/keirin")
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--order", choices=["mysql", "tidb"], default="mysql")
    options = parser.parse_args()
    source = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        maria, keirin = Maria(folder), Keirin(options.keirin)
        try:
            keirin.run(f"SET collation_pad_order = '{options.order}'")
            texts = [text(source, options.order) for _ in range(300)]
            for engine in [maria, keirin]:
                columns = ", ".join(f"c{n} VARCHAR(99) COLLATE {name}" for n, name in enumerate(COLLATIONS))
                engine.run(f"CREATE TABLE t (id INT, fit INT, {columns})")
                fit = lambda value: int(not set(value) & set(SPACES + "\u200d\x01\t\n"))
                rows = [f"({n}, {fit(value)}, {', '.join([quoted(value)] * len(COLLATIONS))})" for n, value in enumerate(texts, 1)]
                rows.append(f"({len(rows) + 1}, 1, {', '.join(['NULL'] * len(COLLATIONS))})")
                engine.run("INSERT INTO t VALUES " + ", ".join(rows))
            failed = {}
            for _ in range(options.queries):
                kind, number, sql = query(source, texts, options.order)
                theirs, ours = maria.run(sql), keirin.run(sql)
                if theirs != ours:
                    failed.setdefault((kind, COLLATIONS[number]), []).append((sql, theirs, ours))
            for (kind, collation), found in failed.items():
                print(f"{len(found)} of {kind} by {collation}")
                for sql, theirs, ours in found[:2]:
                    print(f"  {sql!r}\n    MariaDB {str(theirs)[:300]}\n    Keirin  {str(ours)[:300]}")
            count = sum(map(len, failed.values()))
            print(f"{options.queries} queries, {count} answered differently")
            return min(count, 1)
        finally:
            maria.server.terminate()
            maria.server.wait()
            keirin.process.kill()


if __name__ == "__main__":
    sys.exit(main())
