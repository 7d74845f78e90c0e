"""Random queries, most of them of the forms that Keirin's own operators take over: groups above all.

A query is made of lists, so that what does not matter to a difference can be dropped from it (`smaller`).

Left out, as chosen differences (docs/guide/differences.md): aggregates that follow the order of rows; LIMIT below
the top without a total order, which may keep any rows. Rows that another condition excludes do not fail in Keirin and may
in DuckDB, so expressions that fail stand alone (`failing`).
"""

import copy
import dataclasses
import re

from expressions import Expression
from tables import BIGINT, BOOL, DOUBLE, INTEGERS, TEXT, literal


CONSTANTS = {"77": BIGINT, "'x'": TEXT}  # as keys; by alias or place, as a number would be a place


@dataclasses.dataclass
class Source:
    """What stands behind FROM."""

    sql: str
    columns: list
    rows: int  # at most
    unique: list = dataclasses.field(default_factory=list)  # columns of which no two rows have the same values
    query: object = None  # of `sql`, where that is a query with the alias `alias`
    alias: str = ""
    is_ours: bool = False

    def render(self):
        return f"({self.query.render()}) AS {self.alias}" if self.query else self.sql


@dataclasses.dataclass(eq=False)
class Select:
    source: Source
    items: list  # expressions
    keys: list = dataclasses.field(default_factory=list)  # expressions of GROUP BY
    where: list = dataclasses.field(default_factory=list)
    having: list = dataclasses.field(default_factory=list)
    order: list = dataclasses.field(default_factory=list)  # (item, what follows it)
    limit: list = dataclasses.field(default_factory=list)
    offset: list = dataclasses.field(default_factory=list)
    distinct: list = dataclasses.field(default_factory=list)
    style: int = 0  # how keys are named: as written, by alias, by place, ALL
    grouping: str = ""  # ROLLUP or CUBE
    prefix: str = "o"  # of the aliases of items

    def render(self, whole=False):
        """The text; as `whole`, without LIMIT and OFFSET."""
        items = ", ".join(f"{item.sql} AS {self.prefix}{number}" for number, item in enumerate(self.items))
        sql = f"SELECT {''.join(self.distinct)}{items} FROM {self.source.render()}"
        if self.where:
            sql += " WHERE " + " AND ".join(self.where)
        if self.keys:
            sql += " GROUP BY " + self.render_keys()
        if self.having:
            sql += " HAVING " + " AND ".join(self.having)
        return sql + self.tail(whole)

    def tail(self, whole):
        sql = ""
        order = [(self.place(item), how) for item, how in self.order if self.place(item) is not None]
        if order:
            names = [f"{self.prefix}{place}" if self.style != 2 else f"{place + 1}" for place, _ in order]
            sql += " ORDER BY " + ", ".join(name + how for name, (_, how) in zip(names, order))
        if not whole:
            sql += "".join(f" LIMIT {count}" for count in self.limit)
            sql += "".join(f" OFFSET {count}" for count in self.offset)
        return sql

    def place(self, item):
        return next((place for place, other in enumerate(self.items) if other is item), None)

    def render_keys(self):
        names = []
        shown = [self.place(key) for key in self.keys]
        # By ALL DuckDB takes constants for no keys.
        can_be_all = None not in shown and not self.grouping and not any(key.sql in CONSTANTS for key in self.keys)
        if self.style == 3 and can_be_all:
            return "ALL"
        for key, place in zip(self.keys, shown):
            style = 1 if key.sql in CONSTANTS else self.style
            if place is None or style in (0, 3):
                names.append(key.sql)
            else:
                names.append(f"{self.prefix}{place}" if style == 1 else f"{place + 1}")
        return f"{self.grouping}({', '.join(names)})" if self.grouping else ", ".join(names)

    def is_ours(self):
        return self.source.is_ours or any(item.is_ours for item in self.items)

    def lists(self):
        own = [self.limit, self.offset, self.order, self.having, self.where, self.items, self.keys, self.distinct]
        return own + (self.source.query.lists() if self.source.query else [])


class SetOperation(Select):
    """Two queries with as many items of the same types."""

    def __init__(self, operator, sides, **rest):
        super().__init__(sides[0].source, sides[0].items, **rest)
        self.operator, self.sides = operator, sides

    def render(self, whole=False):
        one, two = (side.render() for side in self.sides)
        return f"{one} {self.operator} {two}" + self.tail(whole)

    def is_ours(self):
        return any(side.is_ours() for side in self.sides)

    def lists(self):
        return [self.limit, self.offset, self.order, *(side.where for side in self.sides)]


def smaller(query):
    """Queries with one thing less, those that leave most out first."""
    for number, parts in enumerate(query.lists()):
        for place in range(len(parts)):
            less = copy.deepcopy(query)
            del less.lists()[number][place]
            if less.items:
                yield less


class Queries:
    def __init__(self, random, expressions):
        self.random, self.expressions = random, expressions

    def maybe(self, probability):
        return self.random.random() < probability

    def query(self):
        return self.expressions.choose(
            (50, lambda: self.grouped(self.source(2))),
            (10, lambda: self.plain(self.source(2))),
            (6, lambda: self.distinct(self.source(1))),
            (10, lambda: self.windows(self.source(1))),
            (6, self.set_operation),
            (3, self.failing),
        )

    # Sources.

    def source(self, depth):
        return self.expressions.choose(
            (12, self.table),
            (4 if depth else 0, self.join),
            (2 if depth else 0, self.joins),
            (3 if depth else 0, lambda: self.derived(depth - 1)),
        )

    def table(self):
        table, alias = self.random.choice(self.expressions.tables), self.expressions.name()
        columns = self.expressions.columns_of(table, alias)
        return Source(f"{table.name} AS {alias}", columns, table.rows, [columns[0]])

    def join(self):
        """A join of two tables by columns of the same type that do not make too many rows of them."""
        r, e = self.random, self.expressions
        left, right = r.choice(e.tables), r.choice(e.tables)
        if self.maybe(0.25):
            return self.join_by_order(left, right)
        one, two = self.random.choice(left.columns), None
        same = [c for c in right.columns if c.type == one.type or c.type.kind == one.type.kind == "int"]
        same = [c for c in same if e.pair_count(left.name, one.name, right.name, c.name) < 300_000]
        if not same or one.type.kind == "real":
            return self.table()
        two = r.choice(same)
        a, b = e.name(), e.name()
        columns = e.columns_of(left, a) + e.columns_of(right, b)
        unique = [columns[0], columns[len(left.columns)]]
        kind = r.choice(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        rows = 300_000 + left.rows + right.rows
        if one.name == two.name == "id" and self.maybe(0.3):
            columns[len(left.columns)] = dataclasses.replace(columns[0], sql="id", type=BIGINT)
            return Source(f"{left.name} AS {a} {kind} {right.name} AS {b} USING (id)", columns[1:], rows, [columns[len(left.columns)]])
        also = f" AND {e.bool(columns, 1)}" if self.maybe(0.3) else ""
        if kind == "JOIN" and self.maybe(0.1) and (subquery := e.subquery(columns)):
            also += f" AND {subquery}"
        on = f"{a}.{one.name} = {b}.{two.name}{also}"
        return Source(f"{left.name} AS {a} {kind} {right.name} AS {b} ON {on}", columns, rows, unique)

    def joins(self):
        """Joins of up to five tables, each by a column of any of those before it."""
        r, e = self.random, self.expressions
        table, alias = r.choice(e.tables), e.name()
        columns, rows = e.columns_of(table, alias), table.rows
        sql, unique = f"{table.name} AS {alias}", [columns[0]]
        for _ in range(r.choice([2, 3, 4])):
            table, alias = r.choice(e.tables), e.name()
            others = e.columns_of(table, alias)
            pairs = [(c, o) for c in columns for o in others if c.type == o.type or c.type.kind == o.type.kind == "int"]
            pairs = [(c, o) for c, o in pairs if c.type.kind != "real" and rows * e.most_equal(table.name, o.sql.split(".")[1]) < 300_000]
            if not pairs:
                continue
            one, two = r.choice(pairs)
            on = [f"{one.sql} = {two.sql}"]
            if self.maybe(0.3):
                one, two = r.choice(pairs)
                on.append(f"{one.sql} = {two.sql}")
            if self.maybe(0.2):
                on.append(e.bool(columns + others, 1))
            kind = r.choice(["JOIN", "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
            sql += f" {kind} {table.name} AS {alias} ON {' AND '.join(on)}"
            rows = max(rows * e.most_equal(table.name, two.sql.split(".")[1]), rows) + table.rows
            columns, unique = columns + others, unique + [others[0]]
        return Source(sql, columns, rows, unique)

    def join_by_order(self, left, right):
        """A join with the nearest row, of which there is one, or by ranges of small tables."""
        r, e = self.random, self.expressions
        a, b = e.name(), e.name()
        columns = e.columns_of(left, a) + e.columns_of(right, b)
        unique = [columns[0], columns[len(left.columns)]]
        whole = [c for c in left.columns if c.type.kind == "int" and c.type.hi <= BIGINT.hi]
        if self.maybe(0.5):
            pairs = [(c, d) for c in left.columns for d in right.columns if c.type == d.type and c.type.kind != "real"]
            equal = "".join(f"{a}.{c.name} = {b}.{d.name} AND " for c, d in (r.sample(pairs, 1) if pairs and self.maybe(0.6) else []))
            kind, op = r.choice(["ASOF JOIN", "ASOF LEFT JOIN"]), r.choice(["<", "<=", ">", ">="])
            on = f"{equal}{a}.{r.choice(whole).name} {op} {b}.id"
            return Source(f"{left.name} AS {a} {kind} {right.name} AS {b} ON {on}", columns, left.rows, unique)
        same = [(c, d) for c in left.columns for d in right.columns if c.type == d.type and c.type.kind != "real"]
        if left.rows * right.rows > 300_000 or not same:
            return self.table()
        bounds = [f"{a}.{c.name} {r.choice(['<', '<=', '>', '>='])} {b}.{d.name}" for c, d in r.choices(same, k=r.choice([1, 2, 2, 3]))]
        if self.maybe(0.4):
            bounds += [f"{a}.{c.name} = {b}.{d.name}" for c, d in r.sample(same, 1)]
        kind = r.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        also = f" AND {e.bool(columns, 1)}" if self.maybe(0.2) else ""
        rows = left.rows * right.rows + left.rows + right.rows
        return Source(f"{left.name} AS {a} {kind} {right.name} AS {b} ON {' AND '.join(bounds)}{also}", columns, rows, unique)

    def derived(self, depth):
        inner = self.expressions.choose(
            (4, lambda: self.grouped(self.source(depth))),
            (2, lambda: self.plain(self.source(depth))),
            (1, lambda: self.distinct(self.source(depth))),
            (1, lambda: self.windows(self.source(0))),
        )
        if inner.limit and not self.orders_totally(inner):
            inner.limit, inner.offset = [], []
        alias = self.expressions.name()
        inner.prefix = f"{alias}_"
        columns = [
            dataclasses.replace(item, sql=f"{alias}.{inner.prefix}{number}", is_column=False, is_exact=item.is_exact and not item.is_ours)
            for number, item in enumerate(inner.items)
        ]
        rows = inner.source.rows
        return Source("", columns, rows, query=inner, alias=alias, is_ours=inner.is_ours())

    def orders_totally(self, query):
        query.order = [(item, " DESC") for item in query.items]
        return all(item.is_exact and not item.is_ours for item in query.items)

    # Queries.

    def conditions(self, source):
        r, e = self.random, self.expressions
        made = [e.bool(source.columns, r.choice([0, 1, 1, 2])) for _ in range(r.choice([0, 0, 1, 1, 2]))]
        if self.maybe(0.15):
            made.append(e.subquery(source.columns))
        return [condition for condition in made if condition]

    def ordered(self, query, probability=0.4):
        """With ORDER BY, LIMIT and OFFSET, or some of them."""
        r = self.random
        exact = [item for item in query.items if item.is_exact and not item.is_ours]
        if exact and self.maybe(probability):
            keys = r.sample(exact, r.randint(1, min(3, len(exact))))
            query.order = [(key, r.choice(["", " DESC"]) + r.choice(["", "", " NULLS FIRST", " NULLS LAST"])) for key in keys]
        if self.maybe(0.35):
            query.limit = [r.choice([0, 1, 3, 10, 10, 100, 5000])]
            if self.maybe(0.3):
                query.offset = [r.choice([1, 5, 1000])]
        return query

    def grouped(self, source):
        r, e = self.random, self.expressions
        exact = [column for column in source.columns if column.is_exact]
        keys = []
        for _ in range(r.choices(range(5), [3, 8, 5, 3, 1])[0] if exact else 0):
            keys.append(self.key(exact, keys))
        items = [key for key in keys if key.sql in CONSTANTS or self.maybe(0.9)]
        items += [e.aggregate(source.columns, source.rows) for _ in range(r.choice([0, 1, 1, 2, 3, 5]))]
        if not items or not keys and all(item.is_column for item in items):
            items.append(Expression("count(*)", BIGINT, 0, source.rows))
        if self.maybe(0.2):
            r.shuffle(items)
        query = Select(source, items, keys, self.conditions(source), style=r.randint(0, 3))
        if len(keys) > 1 and self.maybe(0.04) and not CONSTANTS.keys() & {key.sql for key in keys}:
            query.grouping, query.style = r.choice(["ROLLUP", "CUBE"]), 0
        if self.maybe(0.2):
            aggregate = e.bare_aggregate(source.columns, source.rows)
            if aggregate.is_exact and not aggregate.is_ours:
                query.having = [f"({aggregate.sql} {r.choice(['>', '<=', '=', '<>'])} {e.constant(aggregate)})"]
        columns = [key for key in keys if key.is_column]
        if columns and not query.grouping and self.maybe(0.05):
            query.having += filter(None, [e.subquery(columns)])
            query.style = min(query.style, 2)  # DuckDB refuses such subqueries beside GROUP BY ALL
        return self.ordered(query)

    def key(self, columns, keys):
        r, e = self.random, self.expressions
        numbers = [key for key in keys if key.type.kind == "int"]
        if numbers and self.maybe(0.3):
            return e.int_with_literal(r.choice(numbers))
        if self.maybe(0.6):
            return copy.copy(r.choice(columns))
        made = e.exact(columns, 2)
        if self.maybe(0.03) or not re.search(r"\bt\d+\.|\bid\b", made.sql):
            return Expression(sql := r.choice(list(CONSTANTS)), CONSTANTS[sql], 77, 77)
        return made

    def plain(self, source):
        e = self.expressions
        items = [e.any(source.columns, 2) for _ in range(self.random.randint(1, 4))]
        if self.maybe(0.15):
            items += filter(None, [e.scalar(source.columns)])
        if self.maybe(0.1) and (subquery := e.subquery(source.columns)):
            items.append(Expression(subquery, BOOL))
        return self.ordered(Select(source, items, where=self.conditions(source)))

    def distinct(self, source):
        e = self.expressions
        items = [e.exact(source.columns, 1) for _ in range(self.random.choice([1, 1, 2, 3]))]
        return self.ordered(Select(source, items, where=self.conditions(source), distinct=["DISTINCT "]))

    def set_operation(self):
        """Both sides have the types of the first one's columns."""
        r, e = self.random, self.expressions
        one, two = self.table(), self.table()
        kinds = [c.type for c in r.sample(one.columns, r.randint(1, min(3, len(one.columns)))) if c.type.kind != "real"]
        pairs = [([c for c in one.columns if c.type == t], [c for c in two.columns if c.type == t]) for t in kinds]
        pairs = [(r.choice(ours), r.choice(theirs)) for ours, theirs in pairs if theirs]
        if not pairs:
            pairs = [(one.columns[0], two.columns[0])]
        items = [e.either(ours.sql, ours, theirs) for ours, theirs in pairs]
        sides = [Select(one, items, where=self.conditions(one)), Select(two, [theirs for _, theirs in pairs], where=self.conditions(two))]
        operator = r.choice(["UNION", "INTERSECT", "EXCEPT"]) + r.choice(["", " ALL"])
        return self.ordered(SetOperation(operator, sides))

    def windows(self, source):
        r, e = self.random, self.expressions
        exact = [column for column in source.columns if column.is_exact]
        if not exact:
            return self.plain(source)
        items = list(source.unique) + [self.window(source, exact) for _ in range(r.randint(1, 3))]
        return self.ordered(Select(source, items, where=self.conditions(source)))

    def window(self, source, exact):
        r, e = self.random, self.expressions
        partition = f"PARTITION BY {', '.join(c.sql for c in r.sample(exact, r.choice([1, 1, min(2, len(exact))])))}" if self.maybe(0.7) else ""
        keys = [c.sql + r.choice(["", " DESC", " NULLS FIRST", " NULLS LAST", " DESC NULLS LAST"]) for c in r.sample(exact, 1)]
        order = " ORDER BY " + ", ".join(keys)
        total = " ORDER BY " + ", ".join(keys + [c.sql for c in source.unique])
        value = r.choice(exact)
        count = {"type": BIGINT, "lo": 0, "hi": source.rows}
        aggregate = e.bare_aggregate(source.columns, source.rows)
        if "DISTINCT" in aggregate.sql:
            aggregate = Expression("count(*)", **count)
        frame = self.rows() if source.unique and self.maybe(0.5) else ""
        has_unique = 2 if source.unique else 0
        nulls = r.choice(["", "", " IGNORE NULLS"])
        shift = r.choice(["", ", 2", ", 40", ", -1", f", 3, {literal(r.choice(value.samples), value.type)}" if value.samples else ""])
        place = r.choice(["first_value({}{})", "last_value({}{})", f"nth_value({{}}, {r.choice([1, 2, 7])}{{}})"])
        share = r.choice(["percent_rank()", "cume_dist()"])

        def over(item, clauses):
            return dataclasses.replace(item, sql=f"{item.sql} OVER ({partition}{clauses})", is_column=False)

        return e.choose(
            (2, lambda: over(Expression(f"{r.choice(['rank', 'dense_rank'])}()", **count), order)),
            (1, lambda: over(Expression(share, DOUBLE, 0, 1), order)),
            (has_unique, lambda: over(Expression("row_number()", **count), total)),
            (has_unique // 2, lambda: over(Expression(f"ntile({r.choice([1, 3, 100])})", **count), total)),
            (has_unique, lambda: over(dataclasses.replace(value, sql=f"{r.choice(['lag', 'lead'])}({value.sql}{shift}{nulls})"), total)),
            (has_unique, lambda: over(dataclasses.replace(value, sql=place.format(value.sql, nulls)), total + frame)),
            (3, lambda: over(aggregate, r.choice(["", order, total + frame] if source.unique else ["", order]))),
            (2, lambda: over(aggregate, order + self.groups())),
            (2, lambda: self.near(over, exact, aggregate)),
        )

    def rows(self, unit="ROWS"):
        """A frame of rows, or of peers."""
        r = self.random
        begin = r.choice(["UNBOUNDED PRECEDING", "70 PRECEDING", "2 PRECEDING", "CURRENT ROW", "1 FOLLOWING"])
        ends = ["3 FOLLOWING", "50 FOLLOWING", "UNBOUNDED FOLLOWING"]
        if "FOLL" not in begin:
            ends += ["CURRENT ROW"]
        if "PREC" in begin and begin != "2 PRECEDING":
            ends += ["3 PRECEDING"]
        return f" {unit} BETWEEN {begin} AND {r.choice(ends)}{self.excluded()}"

    def excluded(self):
        return self.random.choice([""] * 6 + [" EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES", " EXCLUDE NO OTHERS"])

    def groups(self):
        return self.rows("GROUPS")

    def near(self, over, exact, aggregate):
        """An aggregate of the rows with a key near that of each row, where the key is such that nothing overflows."""
        r = self.random
        keys = [c for c in exact if c.type.kind == "int" and c.lo is not None and c.type.lo <= c.lo - 50 and c.hi + 50 <= c.type.hi]
        if not keys:
            return over(aggregate, "")
        order = f" ORDER BY {r.choice(keys).sql}" + r.choice(["", " DESC", " NULLS FIRST", " DESC NULLS LAST"])
        begin = r.choice(["UNBOUNDED PRECEDING", "50 PRECEDING", "3 PRECEDING", "CURRENT ROW"])
        end = r.choice(["CURRENT ROW", "2 FOLLOWING", "50 FOLLOWING", "UNBOUNDED FOLLOWING"])
        return over(aggregate, f"{order} RANGE BETWEEN {begin} AND {end}{self.excluded()}")

    def failing(self):
        """An expression that fails for some rows, or for none: with all rows, as nothing protects them."""
        r, e = self.random, self.expressions
        source = self.table()
        column = e.column(source.columns, "int", "text", "decimal") or source.columns[0]
        type_ = r.choice(INTEGERS)
        if column.type.kind == "int" and self.maybe(0.5):
            # Chosen difference: sums of BIGINT UNSIGNED.
            other = r.choice([c for c in source.columns if c.type == column.type])
            sql = f"({column.sql} {r.choice('+-*')} {other.sql})"
        else:
            sql = f"CAST({column.sql} AS {type_.sql})"
        return Select(source, [Expression(sql, BIGINT), copy.copy(source.columns[0])])
