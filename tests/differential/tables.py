"""Random tables: types, values and shapes of columns, and the statements that make and change them.

Left out, as chosen differences (docs/guide/differences.md): TIMESTAMP 'infinity', years before 1, TIME, JSON, lists,
structs and intervals.
"""

import csv
import dataclasses
import datetime
import decimal
import math
import os
import string


@dataclasses.dataclass(frozen=True)
class Type:
    kind: str  # int, decimal, real, double, bool, date, timestamp, text
    keirin: str
    duckdb: str
    lo: int = 0  # int: the least and greatest value; decimal: digits that count are in `hi`, behind the point in `lo`
    hi: int = 0

    @property
    def sql(self):
        return self.keirin if self.keirin == self.duckdb else f"⟪{self.keirin}⟫⟦{self.duckdb}⟧"

    @property
    def is_number(self):
        return self.kind in ("int", "decimal", "double")


def integers():
    for bits, name in ((8, "TINYINT"), (16, "SMALLINT"), (32, "INTEGER"), (64, "BIGINT")):
        yield Type("int", name, name, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        yield Type("int", f"{name} UNSIGNED", f"U{name}", 0, 2**bits - 1)


def decimal_type(digits, scale):
    return Type("decimal", f"DECIMAL({digits}, {scale})", f"DECIMAL({digits}, {scale})", scale, digits)


INTEGERS = list(integers())
DECIMALS = [decimal_type(*sizes) for sizes in ((4, 1), (9, 2), (18, 4), (28, 8), (38, 6))]
BIGINT = next(t for t in INTEGERS if t.keirin == "BIGINT")
REAL, DOUBLE = Type("real", "REAL", "FLOAT"), Type("double", "DOUBLE", "DOUBLE")
BOOL, DATE = Type("bool", "BOOLEAN", "BOOLEAN"), Type("date", "DATE", "DATE")
TIMESTAMP, TEXT = Type("timestamp", "TIMESTAMP", "TIMESTAMP"), Type("text", "VARCHAR", "VARCHAR")

# Floats are multiples of 2 ** -GRAIN within LARGEST, so that sums of them are exact in any order. REAL holds them too.
GRAIN, LARGEST = 4, 2**19
NAMES = ["é", "Ж", "ω", "日本", "🚲", "ñandú", "Ąę"]


def literal(value, type_):
    """A value as SQL that has this type; whole numbers are just digits."""
    if value is None:
        return f"CAST(NULL AS {type_.sql})"
    if type_.kind in ("real", "double"):
        if math.isfinite(value):
            text = f"{value!r}e0" if "e" not in repr(value) else repr(value)
            text = f"({text})" if text.startswith("-") else text
        else:
            text = f"'{value}'"
        return text if type_ == DOUBLE and math.isfinite(value) else f"CAST({text} AS {type_.sql})"
    if type_.kind == "decimal":
        return f"CAST('{value:f}' AS {type_.sql})"
    if type_.kind == "int":
        return str(value) if value >= 0 else f"({value})"
    if type_.kind == "bool":
        return "TRUE" if value else "FALSE"
    if type_.kind == "date":
        return f"DATE '{value.isoformat()}'"
    if type_.kind == "timestamp":
        return f"TIMESTAMP '{value.isoformat(' ')}'"
    return "'" + value.replace("'", "''") + "'"


@dataclasses.dataclass
class Column:
    name: str
    type: Type
    values: list  # all that it has or may be given, each once; never None

    @property
    def samples(self):
        return self.values[:40]

    def literal(self, value):
        return literal(value, self.type)


class Values:
    """Random values of a type: a few, of which columns are made."""

    def __init__(self, random):
        self.random = random

    def some(self, type_, count):
        return getattr(self, type_.kind)(type_, count)

    def int(self, type_, count):
        r = self.random
        shape = r.choice(["few", "small", "full", "near", "row"])
        if shape == "few":
            return [r.choice([0, 1, 2, 3]) for _ in range(min(count, 4))]
        if shape == "small":
            lo, hi = max(type_.lo, -50), min(type_.hi, 50)
        elif shape == "near":
            # Far from zero and near to each other, as times and keys are.
            middle = r.randint(type_.lo, type_.hi)
            lo, hi = max(type_.lo, middle - 100), min(type_.hi, middle + 100)
        elif shape == "row":
            return [type_.lo + min(step, type_.hi - type_.lo) for step in range(count)]
        else:
            lo, hi = type_.lo, type_.hi
        values = [r.randint(lo, hi) for _ in range(count)]
        return values + ([type_.lo, type_.hi, 0] if shape == "full" else [])

    def double(self, _type, count):
        r = self.random
        largest = r.choice([2, 1000, LARGEST])
        values = [r.randint(-largest << GRAIN, largest << GRAIN) / (1 << GRAIN) for _ in range(count)]
        if r.random() < 0.3:
            values = [float(int(value)) for value in values]
        if r.random() < 0.3:
            values += [0.0, -0.0]
        if r.random() < 0.2:
            values += r.sample([math.nan, math.inf, -math.inf], r.randint(1, 3))
        return values

    real = double

    def decimal(self, type_, count):
        scale, digits = type_.lo, type_.hi
        largest = 10 ** self.random.choice([2, digits // 2, digits])
        whole = (self.random.randint(1 - largest, largest - 1) for _ in range(count))
        with decimal.localcontext(prec=60):
            return [decimal.Decimal(number).scaleb(-scale) for number in whole]

    def bool(self, _type, _count):
        return [False, True]

    def date(self, _type, count):
        # Room at both ends for what is added to dates.
        first, last = self.random.choice([(7, 9985), (1960, 2040), (2020, 2021)])
        first = datetime.date(first, 1, 1).toordinal()
        last = datetime.date(last, 1, 1).toordinal()
        return [datetime.date.fromordinal(self.random.randint(first, last)) for _ in range(count)]

    def timestamp(self, type_, count):
        r = self.random
        step = r.choice([3_600_000_000, 1_000_000, 1])
        day = 86_400_000_000
        return [
            datetime.datetime.combine(date, datetime.time()) + datetime.timedelta(microseconds=r.randrange(0, day, step))
            for date in self.date(type_, count)
        ]

    def text(self, _type, count):
        """Letters change their case one for one (no ß, no final sigma) and stand alone (no marks that combine), as
        engines differ in the Unicode tables that they have."""
        r = self.random
        shape = r.choice(["letters", "words", "unicode", "urls", "digits", "long"])
        letters = string.ascii_letters + string.digits + " _-.,;'\"%/"

        def word(longest=8):
            return "".join(r.choices(letters, k=r.randint(0, longest)))

        if shape == "letters":
            made = [r.choice("abcABC") for _ in range(count)]
        elif shape == "words":
            made = [word(12) for _ in range(count)]
        elif shape == "unicode":
            made = [word(3) + r.choice(NAMES) + word(5) for _ in range(count)]
        elif shape == "urls":
            hosts = ["example.com", "www.example.org", "a.b", "größe.example".replace("ß", "s")]
            made = [f"http{r.choice(['', 's'])}://{r.choice(hosts)}/{word(6)}/{r.randint(0, 99)}" for _ in range(count)]
        elif shape == "digits":
            made = [str(r.randint(-999, 999)) for _ in range(count)]
        else:
            made = [word(8) * r.randint(0, 60) + word(13) for _ in range(count)]
        return made + ([""] if r.random() < 0.5 else [])


class Table:
    """`keirin` are the statements that make the table on disk, `memory` the same in memory, `duckdb` in DuckDB."""

    def __init__(self, random, name, rows_max, directory):
        self.random, self.name = random, name
        sizes = [0, 1, 100, 1000, 10_000, 200_000]
        self.rows = min(rows_max, random.choices(sizes, [3, 4, 25, 20, 38, 10])[0])
        self.columns = [Column("id", BIGINT, [*range(0, self.rows, max(1, self.rows // 20)), self.rows])]
        data = [list(range(self.rows))]
        for number in range(random.randint(3, 8)):
            column, values = self.new_column(f"c{number}")
            self.columns.append(column)
            data.append(values)
        rows = list(zip(*data))
        types = ", ".join(f"{column.name} {column.type.sql}" for column in self.columns)
        self.create = f"CREATE TABLE {name} ({types})"
        inserts = self.inserts(rows, directory)
        changes = self.changes()
        self.duckdb = [self.create, *inserts, *changes]
        self.memory = self.duckdb
        self.keirin = [self.create + self.clauses(), *inserts, *changes]

    def new_column(self, name):
        r, rows = self.random, self.rows
        type_ = r.choice(
            [r.choice(INTEGERS), r.choice(INTEGERS), r.choice(DECIMALS), r.choice([REAL, DOUBLE, DOUBLE]), BOOL]
            + [DATE, TIMESTAMP, TEXT, TEXT]
        )
        distinct = r.choice([1, 3, 10, 200, 3000])
        pool = Values(r).some(type_, distinct)
        weights = [1 / (place + 1) ** 2 for place in range(len(pool))] if r.random() < 0.3 else None
        values = r.choices(pool, weights, k=rows)
        order = r.random()
        if order < 0.15:
            values.sort(key=lambda value: (value != value, value))
        elif order < 0.3:
            values = [value for value in values for _ in range(37)][:rows]
        nulls = r.choice([0, 0, 0.05, 0.5, r.choice([0, 1])])
        if nulls and r.random() < 0.3:
            # Nulls in a row, not here and there.
            begin = r.randint(0, rows)
            end = begin + int(rows * nulls)
            values = [None if begin <= place < end else value for place, value in enumerate(values)]
        elif nulls:
            values = [None if r.random() < nulls else value for value in values]
        return Column(name, type_, list(dict.fromkeys(pool))), values

    def inserts(self, rows, directory):
        """One INSERT for each of several parts: of few rows as VALUES, of many from files that DuckDB writes."""
        if not rows:
            return []
        ends = sorted(self.random.sample(range(1, len(rows) + 1), min(len(rows), self.random.choice([1, 1, 2, 5]))))
        statements, begin = [], 0
        for number, end in enumerate(ends[:-1] + [len(rows)]):
            chunk, begin = rows[begin:end], end
            if len(rows) <= 200:
                values = ", ".join(
                    "(" + ", ".join(column.literal(value) for column, value in zip(self.columns, row)) + ")"
                    for row in chunk
                )
                statements.append(f"INSERT INTO {self.name} VALUES {values}")
            else:
                path = os.path.join(directory, f"{self.name}_{number}.parquet")
                self.write(chunk, path)
                statements.append(f"INSERT INTO {self.name} SELECT * FROM '{path}'")
        return statements

    def write(self, rows, path):
        import duckdb

        null = "\\N"
        with open(path + ".csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([null if value is None else value for value in row] for row in rows)
        casts = ", ".join(f"CAST({c.name} AS {c.type.duckdb}) AS {c.name}" for c in self.columns)
        names = ", ".join(f"'{c.name}': 'VARCHAR'" for c in self.columns)
        options = f"columns = {{{names}}}, nullstr = '{null}', auto_detect = false, delim = ',', quote = '\"', escape = '\"'"
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute(f"COPY (SELECT {casts} FROM read_csv('{path}.csv', {options})) TO '{path}'")
        os.remove(path + ".csv")

    def clauses(self):
        r = self.random
        clauses = ""
        if r.random() < 0.5:
            keys = r.sample(self.columns, r.randint(1, 2))
            clauses += " ORDER BY (" + ", ".join(key.name + r.choice(["", " DESC"]) for key in keys) + ")"
        few = [f"{c.name} % 3" for c in self.columns if c.type.kind == "int" and c.type.lo]
        few += [c.name for c in self.columns if len(c.values) <= 10]
        few += [f"date_trunc('year', {c.name})" for c in self.columns if c.type == TIMESTAMP and len(c.values) <= 10]
        if few and r.random() < 0.3:
            clauses += f" PARTITION BY ({', '.join(r.sample(few, min(len(few), r.choice([1, 1, 2]))))})"
        return clauses

    def changes(self):
        r = self.random
        changes = []
        for _ in range(r.choice([0, 0, 1, 2, 3])):
            where = f"id % {r.choice([2, 3, 7, 100])} = {r.choice([0, 1])}"
            if r.random() < 0.3:
                begin = r.randint(0, self.rows)
                where = f"id BETWEEN {begin} AND {begin + self.rows // 4}"
            column = r.choice(self.columns[1:])
            if r.random() < 0.5:
                changes.append(f"DELETE FROM {self.name} WHERE {where}")
            else:
                value = r.choice([None, *column.samples])
                set_ = f"CAST({column.literal(value)} AS {column.type.sql})"
                changes.append(f"UPDATE {self.name} SET {column.name} = {set_} WHERE {where}")
        return changes
