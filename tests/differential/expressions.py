"""Random expressions, with what is known of their values.

Bounds are carried along, so that nothing leaves its type unless it is meant to. What engines are free to do
otherwise, or do otherwise by choice (docs/guide/differences.md), is left out or written so that it means the same:

- A literal beside a narrow column is a BIGINT here and takes the column's type in DuckDB: there the column is cast.
  So is BIGINT UNSIGNED, which becomes a DECIMAL here.
- `/` of whole numbers is `//` in DuckDB. Divisors are never zero.
- REAL is cast to DOUBLE, as DuckDB's functions do, before anything but comparing, counting and adding up.
- Sums of floats are exact (`Expression.grain`), as they would depend on the order of rows. What is not exact is
  shown, but nothing is decided by it.
- avg of DECIMALs has other digits in DuckDB: `Expression.is_ours` asks for Keirin's own answer to compare with.
- Zeros of floats have a sign that groups and DISTINCT may drop: nothing here shows it.
- Patterns have no backslash, which escapes in one engine only. Positions in texts begin at 1.
- No function depends on tables of Unicode beyond upper and lower case of single letters.
"""

import dataclasses
import datetime
import decimal
import math
import re

from tables import BIGINT, BOOL, DATE, DOUBLE, GRAIN, INTEGERS, TEXT, TIMESTAMP, Type, decimal_type, literal

INTEGER = next(t for t in INTEGERS if t.keirin == "INTEGER")
HUGE = decimal_type(38, 0)
EXACT = 2**53  # beyond that a DOUBLE has no room for all whole numbers


@dataclasses.dataclass
class Expression:
    sql: str
    type: Type
    lo: object = None  # least and greatest finite value of numbers, if known
    hi: object = None
    grain: object = None  # DOUBLEs are multiples of 2 ** -grain, if known
    is_special: bool = False  # NaN and infinities may be among them
    is_exact: bool = True  # the same to the last digit in all engines
    is_column: bool = False
    is_ours: bool = False
    samples: tuple = ()

    def fits(self, type_):
        return self.lo is not None and type_.lo <= self.lo and self.hi <= type_.hi

    def magnitude(self):
        return None if self.lo is None else max(abs(self.lo), abs(self.hi))

    def adds_up(self, rows):
        """Whether the sum of so many rows is exact in a DOUBLE."""
        magnitude = self.magnitude()
        return self.grain is not None and magnitude is not None and magnitude * rows * 2**self.grain < EXACT


def widened(e):
    """`e` in arithmetic with literals, where DuckDB would keep a narrow type."""
    type_ = "DECIMAL(21, 0)" if e.type.hi > BIGINT.hi else "BIGINT"
    return f"⟦CAST(⟧{e.sql}⟦ AS {type_})⟧"


def number_text(value):
    text = f"{value:f}" if isinstance(value, decimal.Decimal) else repr(value)
    return f"({text})" if text.startswith("-") else text


class Expressions:
    """`tables` are for subqueries, `pair_count(table, column, table, column)` says how many pairs are equal,
    `most_equal(table, column)` how many rows have the most frequent value."""

    def __init__(self, random, tables, pair_count, most_equal):
        self.random, self.tables, self.pair_count, self.most_equal = random, tables, pair_count, most_equal
        self.serial = 0

    def maybe(self, probability):
        return self.random.random() < probability

    def choose(self, *choices):
        """One of (weight, function) pairs, those of weight 0 left out."""
        choices = [choice for choice in choices if choice[0]]
        return self.random.choices([c[1] for c in choices], [c[0] for c in choices])[0]()

    def name(self):
        self.serial += 1
        return f"t{self.serial}"

    def columns_of(self, table, alias):
        columns = []
        for column in table.columns:
            e = Expression(f"{alias}.{column.name}", column.type, is_column=True, samples=tuple(column.samples))
            if column.type.kind in ("int", "decimal", "double", "real"):
                finite = [value for value in column.values if math.isfinite(value)] or [0]
                e.lo, e.hi = min(finite), max(finite)
                e.is_special = len(finite) < len(column.values)
                e.grain = GRAIN if column.type.kind in ("double", "real") else None
            columns.append(e)
        return columns

    # Leaves.

    def column(self, scope, *kinds):
        found = [e for e in scope if e.type.kind in kinds and e.is_exact]
        return self.random.choice(found) if found else None

    def constant(self, e):
        """A literal to compare `e` with."""
        r = self.random
        if e.samples and self.maybe(0.85):
            value = r.choice(e.samples)
            if e.type.kind == "decimal":
                return number_text(value)
            # Long texts would hide what a query is about.
            return literal(value if e.type != TEXT else value[:40], e.type)
        kind = e.type.kind
        if kind == "int":
            lo, hi = (-10, 100) if e.lo is None else (int(e.lo), int(e.hi))
            return number_text(r.choice([0, 1, r.randint(lo, max(lo, hi)), r.randint(-5, 20)]))
        if kind == "decimal":
            return number_text(decimal.Decimal(r.randint(-100, 1000)) / 10)
        if kind in ("double", "real"):
            return literal(r.randint(-100, 1000) / (1 << GRAIN), e.type)
        if kind == "bool":
            return r.choice(["TRUE", "FALSE"])
        day = datetime.date(r.randint(1960, 2040), r.randint(1, 12), 1)
        if kind == "date":
            return literal(day, DATE)
        if kind == "timestamp":
            return literal(datetime.datetime.combine(day, datetime.time()), TIMESTAMP)
        return literal(r.choice(["", "a", "B", "http", "x1", "é"]), TEXT)

    # Numbers.

    def number(self, scope, depth):
        return self.choose((6, lambda: self.int(scope, depth)), (2, lambda: self.decimal(scope, depth)), (2, lambda: self.double(scope, depth)))

    def int(self, scope, depth):
        r = self.random
        column = self.column(scope, "int")
        text = self.column(scope, "text")
        moment = self.column(scope, "date", "timestamp")
        if depth <= 0 or self.maybe(0.35):
            if column and self.maybe(0.9):
                return column
            value = r.choice([0, 1, 7, -3, 100, 1000])
            return Expression(number_text(value), BIGINT, value, value)
        return self.choose(
            (5 if column else 0, lambda: self.int_with_literal(self.int(scope, depth - 1))),
            (2 if column else 0, lambda: self.int_with_column(scope, column)),
            (1, lambda: self.unary(self.int(scope, depth - 1))),
            (2, lambda: self.case(scope, depth, self.int)),
            (1, lambda: self.coalesced(self.int(scope, depth - 1))),
            (1 if text else 0, lambda: self.of_text(text)),
            (1 if moment else 0, lambda: self.extracted(moment)),
            (1, lambda: Expression(f"CAST({self.bool(scope, depth - 1)} AS INTEGER)", INTEGER, 0, 1)),
            (1, lambda: self.rounded(scope, depth)),
        )

    def int_with_literal(self, e):
        r = self.random
        operator = r.choice(["+", "-", "-", "*", "%", "/", "&"])
        value = r.choice([1, 2, 3, 7, 10, 100, 1000])
        if e.type.kind != "int":
            return e
        if e.type.hi > BIGINT.hi:
            if operator == "/":
                return Expression(f"({e.sql} ⟪/⟫⟦//⟧ {value})", e.type, e.lo // value, e.hi // value)
            # BIGINT UNSIGNED beside a literal is a DECIMAL(21, 0).
            sign = 1 if operator in "+*" else -1
            e2 = Expression(f"({widened(e)} {'+' if sign > 0 else '-'} {value})", decimal_type(21, 0))
            e2.lo, e2.hi = e.lo + sign * value, e.hi + sign * value
            return e2
        if operator in "%/&":
            if operator == "&" and e.lo < 0:
                operator = "%"
            if operator == "/":
                bounds, operator = (int(e.lo / value) - 1, int(e.hi / value) + 1), "⟪/⟫⟦//⟧"
            else:
                bounds = (1 - value if e.lo < 0 else 0, value if operator == "&" else value - 1)
            return Expression(f"({widened(e)} {operator} {value})", BIGINT, *bounds)
        reverse = operator == "-" and self.maybe(0.2)
        ends = [e.lo + value, e.hi + value] if operator == "+" else [e.lo - value, e.hi - value]
        if operator == "*":
            ends = [e.lo * value, e.hi * value]
        sql = f"({widened(e)} {operator} {value})"
        if reverse:
            ends, sql = [value - e.hi, value - e.lo], f"({value} - {widened(e)})"
        made = Expression(sql, BIGINT, *ends)
        return made if made.fits(BIGINT) else e

    def int_with_column(self, scope, column):
        other = self.random.choice([e for e in scope if e.type == column.type and e.is_column] or [column])
        operator = self.random.choice(["+", "-", "*"])
        pairs = [(a, b) for a in (column.lo, column.hi) for b in (other.lo, other.hi)]
        ends = [a + b if operator == "+" else a - b if operator == "-" else a * b for a, b in pairs]
        made = Expression(f"({column.sql} {operator} {other.sql})", column.type, min(ends), max(ends))
        return made if made.fits(column.type) else column

    def unary(self, e):
        # What is no column may have a narrower type than is known here.
        fits = e.lo > e.type.lo if e.is_column else -128 < e.lo and e.hi < 128
        if e.type.lo == 0 or not fits:
            return e
        if self.maybe(0.5):
            return Expression(f"abs({e.sql})", e.type, 0, e.magnitude())
        return Expression(f"(-{e.sql})", e.type, -e.hi, -e.lo)

    def case(self, scope, depth, of):
        one, two = of(scope, depth - 1), of(scope, depth - 1)
        if one.type.kind != two.type.kind or not (one.is_exact and two.is_exact):
            return one
        other = f" ELSE {two.sql}" if self.maybe(0.8) else ""
        sql = f"CASE WHEN {self.bool(scope, depth - 1)} THEN {one.sql}{other} END"
        return self.either(sql, one, two if other else one)

    def either(self, sql, one, two):
        """What is one of two expressions."""
        made = dataclasses.replace(one, sql=sql, is_column=False, is_special=one.is_special or two.is_special)
        if one.type != two.type:
            made.samples = ()
            if one.type.kind == "int":
                made.type = BIGINT
                if max(one.type.hi, two.type.hi) > BIGINT.hi:
                    made.sql, made.type = f"CAST({sql} AS DECIMAL(38, 0))", HUGE
            elif one.type.kind == "decimal":
                scale = max(one.type.lo, two.type.lo)
                made.type = decimal_type(min(38, scale + max(one.type.hi - one.type.lo, two.type.hi - two.type.lo)), scale)
        if one.lo is None or two.lo is None:
            made.lo = made.hi = None
        else:
            made.lo, made.hi = min(one.lo, two.lo), max(one.hi, two.hi)
        made.grain = None if one.grain is None or two.grain is None else max(one.grain, two.grain)
        return made

    def coalesced(self, e):
        if not e.samples:
            return e
        value = self.random.choice(e.samples)
        # A literal beside BIGINT UNSIGNED makes both DECIMALs.
        other = f"CAST({value} AS {e.type.sql})" if e.type.kind == "int" and e.type.hi > BIGINT.hi else literal(value, e.type)
        return dataclasses.replace(e, sql=f"coalesce({e.sql}, {other})", is_column=False)

    def of_text(self, text):
        function = self.random.choice(["length", "⟪octet_length⟫⟦strlen⟧", "position"])
        sql = f"{function}({text.sql})" if function != "position" else f"strpos({text.sql}, '/')"
        return Expression(sql, INTEGER, 0, 10_000)

    def extracted(self, moment):
        parts = {"year": (1, 9999), "month": (1, 12), "day": (1, 31), "quarter": (1, 4), "doy": (1, 366), "dow": (0, 6)}
        if moment.type == TIMESTAMP:
            parts |= {"hour": (0, 23), "minute": (0, 59)}
        part = self.random.choice(list(parts))
        return Expression(f"extract({part} FROM {moment.sql})", INTEGER, *parts[part])

    def rounded(self, scope, depth):
        e = self.choose((1, lambda: self.decimal(scope, depth - 1)), (1, lambda: self.double(scope, depth - 1)))
        if e.is_special or not e.is_exact or e.lo is None or e.magnitude() > EXACT:
            return Expression("1", BIGINT, 1, 1)
        return Expression(f"CAST({e.sql} AS BIGINT)", BIGINT, int(e.lo) - 1, int(e.hi) + 1)

    def decimal(self, scope, depth):
        column = self.column(scope, "decimal")
        if not column:
            return self.int(scope, depth)
        if depth <= 0 or self.maybe(0.35):
            return column
        return self.choose(
            (3, lambda: self.decimal_with(column, scope)),
            (1, lambda: self.case(scope, depth, self.decimal)),
            (1, lambda: self.coalesced(column)),
            (1, lambda: Expression(f"abs({column.sql})", column.type, 0, column.magnitude())),
            (1, lambda: Expression(f"(-{column.sql})", column.type, -column.hi, -column.lo)),
            (1, lambda: dataclasses.replace(column, sql=f"round({column.sql}, {self.random.randint(0, 3)})", is_column=False, samples=(), lo=column.lo - 1, hi=column.hi + 1)),
        )

    def decimal_with(self, column, scope):
        other = self.column(scope, "decimal")
        if self.maybe(0.5):
            value = self.random.choice(["0.5", "1.25", "10.0"])
            other = Expression(value, decimal_type(len(value) - 1, len(value.split(".")[1])), *[decimal.Decimal(value)] * 2)
        operator = self.random.choice(["+", "-", "*"])
        scales, whole = (column.type.lo, other.type.lo), max(e.type.hi - e.type.lo for e in (column, other))
        scale, digits = max(scales), whole + max(scales) + 1
        if operator == "*":
            scale, digits = sum(scales), column.type.hi + other.type.hi
        with decimal.localcontext(prec=80):
            pairs = [(a, b) for a in (column.lo, column.hi) for b in (other.lo, other.hi)]
            ends = [a + b if operator == "+" else a - b if operator == "-" else a * b for a, b in pairs]
            made = Expression(f"({column.sql} {operator} {other.sql})", decimal_type(digits, scale), min(ends), max(ends))
            # Chosen difference: DuckDB has 18 digits for what is made of operands of at most 18.
            room = 18 if max(column.type.hi, other.type.hi) <= 18 else 36
            fits = digits <= 36 and decimal.Decimal(made.magnitude()).scaleb(scale) < decimal.Decimal(10) ** room
        return made if fits else column

    def double(self, scope, depth):
        column = self.column(scope, "double", "real")
        if not column:
            return self.int(scope, depth)
        if column.type.kind == "real":
            column = dataclasses.replace(column, sql=f"CAST({column.sql} AS DOUBLE)", type=DOUBLE, is_column=False)
        if depth <= 0 or self.maybe(0.35):
            return column
        return self.choose(
            (3, lambda: self.double_with(column, scope, depth)),
            (1, lambda: self.case(scope, depth, self.double)),
            (1, lambda: self.coalesced(column)),
            (1, lambda: dataclasses.replace(column, sql=f"abs({column.sql})", is_column=False, lo=0, samples=(), hi=column.magnitude())),
            (1, lambda: dataclasses.replace(column, sql=f"{self.random.choice(['floor', 'ceil'])}({column.sql})", is_column=False, samples=(), lo=column.lo - 1, hi=column.hi + 1)),
            (1, lambda: Expression(f"sqrt(abs({column.sql}))", DOUBLE, is_exact=False, is_special=True)),
        )

    def double_with(self, column, scope, depth):
        other = self.choose((2, lambda: self.double(scope, depth - 1)), (1, lambda: self.int(scope, 0)))
        if self.maybe(0.4):
            value = self.random.choice([0.5, 2.0, 10.0])
            other = Expression(literal(value, DOUBLE), DOUBLE, value, value, 1)
        operator = self.random.choice(["+", "-", "*", "/"])
        grain = 0 if other.type.kind == "int" else other.grain
        made = Expression("", DOUBLE, is_special=True, is_exact=column.is_exact and other.is_exact)
        if operator == "/":
            made.sql = f"({column.sql} / nullif({other.sql}, 0))"
            made.is_exact = False
            return made
        made.sql = f"({column.sql} {operator} {other.sql})"
        if not made.is_exact or None in (grain, column.grain, other.lo, column.lo) or other.magnitude() > EXACT:
            made.is_exact = False
            return made
        pairs = [(a, b) for a in (column.lo, column.hi) for b in (other.lo, other.hi)]
        ends = [a + b if operator == "+" else a - b if operator == "-" else a * b for a, b in pairs]
        made.lo, made.hi = min(ends), max(ends)
        made.grain = column.grain + grain if operator == "*" else max(column.grain, grain)
        made.is_special = column.is_special or other.is_special
        made.is_exact = made.magnitude() * 2**made.grain < EXACT
        return made

    # Texts, moments.

    def text(self, scope, depth):
        r = self.random
        column = self.column(scope, "text")
        if not column:
            return Expression(literal(r.choice(["", "x", "é"]), TEXT), TEXT)
        if depth <= 0 or self.maybe(0.35):
            return column
        whole = self.column(scope, "int", "date", "bool")
        inner = self.text(scope, depth - 1).sql
        place, count = r.randint(1, 4), r.randint(0, 6)
        made = self.choose(
            (3, lambda: f"{r.choice(['lower', 'upper'])}({inner})"),
            (2, lambda: f"substr({inner}, {place}, {count})"),
            (1, lambda: f"{r.choice(['left', 'right'])}({inner}, {count})"),
            (1, lambda: f"({inner} || {self.constant(column)})"),
            (1, lambda: f"concat({inner}, {column.sql})"),
            (1, lambda: f"replace({inner}, {r.choice(['a', '/', 'é'])!r}, {r.choice(['', 'zz'])!r})"),
            (1, lambda: f"{r.choice(['trim', 'ltrim', 'rtrim', 'reverse'])}({inner})"),
            # DuckDB 2.0.0 does not bind some conditions on split_part of a column.
            (1, lambda: f"split_part(⟦'' || ⟧{inner}, '/', {place})"),
            (1, lambda: f"regexp_replace({inner}, '^https?://(?:www\\.)?([^/]+)/.*$', '\\1')"),
            (1 if whole else 0, lambda: f"CAST({whole.sql} AS VARCHAR)"),
            (1, lambda: self.case(scope, depth, self.text).sql),
            (1, lambda: f"nullif({inner}, {self.constant(column)})"),
            (1, lambda: f"coalesce({inner}, {self.constant(column)})"),
        )
        return Expression(made, TEXT, samples=column.samples)

    def moment(self, scope, depth):
        r = self.random
        column = self.column(scope, "date", "timestamp")
        if not column:
            return self.text(scope, depth)
        if depth <= 0 or self.maybe(0.3):
            return column
        units = ["year", "quarter", "month", "week", "day"] + (["hour", "minute"] if column.type == TIMESTAMP else [])
        unit = r.choice(units)
        sign, count = r.choice("+-"), r.randint(1, 300)
        # A DATE that is cut or moved has one type here and another there.
        return self.choose(
            (3, lambda: Expression(f"CAST(date_trunc('{unit}', {column.sql}) AS {column.type.sql})", column.type)),
            (1, lambda: Expression(f"CAST({column.sql} AS DATE)", DATE)),
            (1, lambda: Expression(f"CAST({column.sql} AS TIMESTAMP)", TIMESTAMP)),
            (1, lambda: Expression(f"CAST(({column.sql} {sign} INTERVAL '{count} days') AS {column.type.sql})", column.type)),
            (1, lambda: self.case(scope, depth, lambda scope, _depth: column)),
        )

    def any(self, scope, depth):
        """An expression of any type; `real` and `bool` are columns."""
        plain = self.column(scope, "real", "bool")
        return self.choose(
            (4, lambda: self.number(scope, depth)),
            (2, lambda: self.text(scope, depth)),
            (2, lambda: self.moment(scope, depth)),
            (1 if plain else 0, lambda: plain),
            (1, lambda: Expression(f"({self.bool(scope, depth)})", BOOL)),
        )

    def exact(self, scope, depth):
        """Such that it may decide something."""
        made = self.any(scope, depth)
        return made if made.is_exact else self.any([made for made in scope if made.is_exact], 0)

    # Conditions.

    def bool(self, scope, depth):
        r = self.random
        flag = self.column(scope, "bool")
        if depth > 0 and self.maybe(0.3):
            one, two = self.bool(scope, depth - 1), self.bool(scope, depth - 1)
            return self.choose((2, lambda: f"({one} AND {two})"), (2, lambda: f"({one} OR {two})"), (1, lambda: f"(NOT {one})"))
        scope = [e for e in scope if e.is_exact]
        if not scope or self.maybe(0.03):
            return r.choice(["TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"])
        e = r.choice(scope) if self.maybe(0.6) else self.exact(scope, depth - 1)
        compare = r.choice(["=", "=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
        negation = r.choice(["", "", "NOT "])
        return self.choose(
            (6, lambda: f"{e.sql} {compare} {self.constant(e)}"),
            (2, lambda: self.between_columns(scope, e, compare)),
            (2, lambda: f"{e.sql} IS {negation}NULL"),
            (2, lambda: f"{e.sql} {negation}IN ({', '.join(self.constant(e) for _ in range(r.randint(1, 5)))})"),
            (2, lambda: f"{e.sql} {negation}BETWEEN {self.constant(e)} AND {self.constant(e)}"),
            (1 if flag else 0, lambda: flag.sql),
            (4 if e.type == TEXT else 0, lambda: f"{e.sql} {negation}{r.choice(['LIKE', 'LIKE', 'ILIKE'])} {self.pattern(e)}"),
            (1 if e.type == TEXT else 0, lambda: f"{e.sql} {compare} ''"),
            (1 if e.type == TEXT else 0, lambda: f"starts_with({e.sql}, {literal(r.choice(['', 'a', 'http', 'é']), TEXT)})"),
        )

    def between_columns(self, scope, e, compare):
        # REAL meets DOUBLE as DOUBLE in both; beside whole numbers DuckDB takes REAL.
        number = ("int", "decimal", "double")
        if e.type.kind in ("double", "real"):
            number = ("double", "real")
        kinds = number if e.type.kind in number else (e.type.kind,)
        other = self.column(scope, *kinds)
        if not other or e.type.kind == "decimal" and other.type.kind == "decimal" and e.type.hi + other.type.hi > 38:
            other = e
        if {e.type.kind, other.type.kind} == {"decimal", "int"} or {e.type.kind, other.type.kind} == {"decimal", "double"}:
            other = e
        return f"{e.sql} {compare} {other.sql}"

    def pattern(self, e):
        r = self.random
        text = r.choice(e.samples or ("abc",))[:20].replace("_", "").replace("%", "")
        begin = r.randint(0, max(0, len(text) - 3))
        piece = text[begin : begin + r.randint(0, 4)]
        pattern = r.choice([f"%{piece}%", f"{text[:3]}%", f"%{text[-3:]}", f"_{text[1:4]}%", f"{piece}%{text[-2:]}", text, "%", "_%"])
        return literal(pattern, TEXT)

    # Conditions with subqueries.

    def subquery(self, scope, depth=2):
        """IN, EXISTS and comparisons with values of another table; None if no columns fit. Conditions inside may have
        subqueries themselves, all of them may mention any column of `scope`."""
        r = self.random
        outer = r.choice(scope)
        inner = self.inner(scope, outer, depth)
        if not inner:
            return None
        key, id_, from_, correlated = inner
        negation, order = r.choice(["", "NOT "]), r.choice(["=", "<", ">="])
        having = r.choice(["", f" GROUP BY {key.sql}", f" GROUP BY {key.sql} HAVING count(*) > {r.choice([1, 2])}"])
        by_key = f"PARTITION BY {key.sql} " if self.maybe(0.5) else ""
        number = f"row_number() OVER ({by_key}ORDER BY {id_})"
        value = self.scalar(scope, depth, outer)
        values = r.choice([from_, from_, correlated])
        # NULL IN (no rows) is NULL in DuckDB where the subquery is correlated.
        is_correlated = any(re.search(rf"\b{re.escape(e.sql)}\b", values) for e in scope)
        known = f"{outer.sql} IS NOT NULL AND " if is_correlated else ""
        return self.choose(
            (3, lambda: f"({known}{outer.sql} {negation}IN (SELECT {key.sql} {values}))"),
            (3, lambda: f"({negation}EXISTS (SELECT {key.sql} {correlated}{having}))"),
            (1, lambda: f"({r.choice([1, 3])} {negation}IN (SELECT {number} {correlated}))"),
            (2 if value and value.type != BOOL else 0, lambda: f"({value.sql} {order} {self.constant(value)})"),
            (1 if value and value.type == outer.type != BOOL else 0, lambda: f"({outer.sql} {order} {value.sql})"),
        )

    def scalar(self, scope, depth=2, outer=None):
        """One value of another table; None if no columns fit."""
        r = self.random
        outer = outer or r.choice(scope)
        inner = self.inner(scope, outer, depth)
        if not inner:
            return None
        key, id_, from_, correlated = inner
        value = Expression("", key.type, key.lo, key.hi, key.grain, key.is_special, samples=key.samples)
        extreme = f"{r.choice(['min', 'max'])}({key.sql})" if key.type != BOOL else f"bool_or({key.sql})"
        one = f" ORDER BY {key.sql}, {id_}{r.choice(['', ' DESC'])} LIMIT 1"
        made = self.choose(
            (2, lambda: Expression(f"(SELECT count(*) {correlated})", BIGINT, 0, EXACT)),
            (2, lambda: dataclasses.replace(value, sql=f"(SELECT {extreme} {r.choice([from_, correlated])})")),
            (1, lambda: dataclasses.replace(value, sql=f"(SELECT {key.sql} {correlated}{one})")),
            (1, lambda: dataclasses.replace(value, sql=f"(SELECT {key.sql} {from_}{one})")),
        )
        return made

    def inner(self, scope, outer, depth):
        """A column of another table that compares with `outer`, the one that numbers its rows, and FROM with WHERE,
        without and with the two being equal; None if no columns fit."""
        r = self.random
        table, alias = r.choice(self.tables), self.name()
        columns = self.columns_of(table, alias)
        same = [e for e in columns if e.type == outer.type or e.type.kind == outer.type.kind == "int"]
        if not same or not outer.is_exact or outer.type.kind == "real":
            return None
        key = r.choice(same)
        is_small = table.rows <= 3000  # pairs of rows are looked at where nothing is equal
        conditions = [self.bool(columns + (scope if is_small and self.maybe(0.2) else []), 1)] if self.maybe(0.6) else []
        if depth and is_small and self.maybe(0.35):
            conditions += filter(None, [self.subquery(columns + scope, depth - 1)])
        from_ = f"FROM {table.name} AS {alias}"
        equal = f"{key.sql} = {outer.sql}"
        where = " WHERE " + " AND ".join(conditions) if conditions else ""
        return key, columns[0].sql, from_ + where, f"{from_} WHERE {' AND '.join([equal, *conditions])}"

    # Aggregates.

    def aggregate(self, scope, rows):
        made = self.bare_aggregate(scope, rows)
        if made.sql.endswith(")") and self.maybe(0.15):
            made.sql += f" FILTER (WHERE {self.bool(scope, 1)})"
        return made

    def bare_aggregate(self, scope, rows):
        r = self.random
        depth = r.choice([0, 0, 1, 2])
        count = {"lo": 0, "hi": rows}
        return self.choose(
            (3, lambda: Expression("count(*)", BIGINT, **count)),
            (2, lambda: Expression(f"count({self.any(scope, depth).sql})", BIGINT, **count)),
            (3, lambda: Expression(f"count(DISTINCT {self.exact(scope, depth).sql})", BIGINT, **count)),
            (6, lambda: self.sum(scope, rows, depth)),
            (4, lambda: self.average(scope, rows, depth)),
            (5, lambda: self.extreme(scope, depth)),
            (1, lambda: Expression(f"{r.choice(['bool_and', 'bool_or'])}({self.bool(scope, 1)})", BOOL)),
        )

    def sum(self, scope, rows, depth):
        distinct = "DISTINCT " if self.maybe(0.07) else ""
        e = self.column(scope, "real") if self.maybe(0.1) else None
        e = e or self.number(scope, depth)
        if e.type.kind == "int":
            if e.magnitude() * rows > BIGINT.hi:
                return Expression(f"sum({distinct}CAST({e.sql} AS DECIMAL(38, 0)))", HUGE, min(e.lo * rows, 0), max(e.hi * rows, 0))
            return Expression(f"sum({distinct}{e.sql})", BIGINT, min(e.lo * rows, 0, e.lo), max(e.hi * rows, 0, e.hi))
        if e.type.kind == "decimal":
            with decimal.localcontext(prec=80):
                # A sum has 38 digits.
                if e.magnitude() * rows > decimal.Decimal(10) ** (38 - e.type.lo) / 2:
                    return Expression(f"max({e.sql})", e.type, e.lo, e.hi)
                return Expression(f"sum({distinct}{e.sql})", decimal_type(38, e.type.lo), min(e.lo * rows, 0), max(e.hi * rows, 0))
        if not e.adds_up(rows):
            return Expression(f"count({e.sql})", BIGINT, 0, rows)
        return Expression(f"sum({distinct}{e.sql})", DOUBLE, min(e.lo * rows, 0), max(e.hi * rows, 0), e.grain, e.is_special)

    def average(self, scope, rows, depth):
        e = self.column(scope, "real") if self.maybe(0.1) else None
        e = e or self.number(scope, depth)
        made = Expression(f"avg({e.sql})", DOUBLE, e.lo, e.hi, is_special=e.is_special)
        if e.type.kind == "int":
            made.is_exact = e.magnitude() * rows < EXACT
            # DuckDB 2.0.0 lets such sums wrap behind some joins.
            made.is_ours = e.magnitude() * rows > BIGINT.hi
        elif e.type.kind == "decimal":
            made.is_ours, made.is_exact = True, False
            if e.type.hi > 30:
                return Expression(f"min({e.sql})", e.type, e.lo, e.hi)
        elif not e.adds_up(rows):
            return Expression(f"count({e.sql})", BIGINT, 0, rows)
        return made

    def extreme(self, scope, depth):
        e = self.exact(scope, depth)
        return dataclasses.replace(e, sql=f"{self.random.choice(['min', 'max'])}({e.sql})", is_column=False)
