"""Whether two answers are the same: rows in any order, or by the columns of ORDER BY."""

import collections
import datetime
import decimal
import math

TOLERANCE = {"DOUBLE": 1e-9, "FLOAT": 1e-6}


def canonical(value, type_name):
    """One spelling for a value: a text, a float or None. Zero has no sign and NaN is a text, so that equal is `==`."""
    if value is None:
        return None
    if type_name in TOLERANCE:
        number = float(value)
        return "nan" if math.isnan(number) else number + 0.0
    if isinstance(value, bool):
        return "true" if value else "false"
    if type_name == "VARCHAR":
        return value
    if isinstance(value, decimal.Decimal):
        value = format(value, "f")
    elif isinstance(value, (datetime.date, datetime.datetime)):
        value = value.isoformat(" ") if isinstance(value, datetime.datetime) else value.isoformat()
    elif not isinstance(value, str):
        return str(value)
    if "." in value:
        # Decimals and fractions of seconds; what is left of `-0.00` is zero.
        value = value.rstrip("0").removesuffix(".")
        return "0" if value == "-0" else value
    # date_trunc of a DATE is a DATE here and a TIMESTAMP there: midnight is its day.
    return value.removesuffix(" 00:00:00")


def canonical_rows(rows, types):
    return [tuple(map(canonical, row, types)) for row in rows]


def is_near(one, two, tolerance):
    if one == two:
        return True
    if not (isinstance(one, float) and isinstance(two, float)):
        return False
    return math.isfinite(one) and math.isfinite(two) and abs(one - two) <= tolerance * max(abs(one), abs(two))


class Comparison:
    """Holds answers against the whole answer `whole` of a query: all rows, before LIMIT and OFFSET."""

    def __init__(self, whole, types, order=(), limit=None, offset=0):
        self.types, self.order = types, order
        self.tolerances = [TOLERANCE.get(name, 0) for name in types]
        self.whole = canonical_rows(whole, types)
        self.count = collections.Counter(self.whole)
        end = len(whole) if limit is None else offset + limit
        self.wanted = self.whole[offset:end]

    def difference(self, rows):
        """What is different in `rows`, in words; None if nothing is. Rows must be of the whole answer, as many as
        LIMIT says, with the keys of ORDER BY that stand there: which of tied rows they are is free."""
        if any(len(row) != len(self.types) for row in rows):
            return f"{len(rows[0])} columns against {len(self.types)}"
        rows = canonical_rows(rows, self.types)
        if len(rows) != len(self.wanted):
            return f"{len(rows)} rows against {len(self.wanted)}" + self.examples(rows)
        extra = list((collections.Counter(rows) - self.count).elements())
        if extra:
            missing = (self.count - collections.Counter(rows)).elements()
            extra = self.without_near(extra, list(missing))
        if extra:
            return f"{len(extra)} rows are other ones" + self.examples(rows)
        for place, (ours, theirs) in enumerate(zip(rows, self.wanted)):
            if not all(is_near(ours[key], theirs[key], self.tolerances[key]) for key in self.order):
                return f"row {place} is {ours} against {theirs}: another order"
        return None

    def without_near(self, extra, missing):
        """The rows of `extra` that are not those of `missing` but for the last digits of floats."""
        def exact(row):
            return tuple(None if isinstance(value, float) else value for value in row)

        def step(row):
            """Where the first float is on a logarithmic scale: near ones are on the same step or the next one."""
            first = next((value for value in row if isinstance(value, float)), 0.0)
            if first == 0 or math.isinf(first):
                return first, 0
            return math.copysign(1, first), round(math.log(abs(first)) / max(TOLERANCE.values()))

        found, left = collections.defaultdict(list), []
        for row in sorted(missing, key=repr):
            found[exact(row), step(row)].append(row)
        for row in extra:
            sign, place = step(row)
            steps = [found.get((exact(row), (sign, place + near)), []) for near in (0, -1, 1)]
            is_same = lambda other: all(map(is_near, row, other, self.tolerances))
            same = next((same for same in steps if any(map(is_same, same))), None)
            if same is None:
                left.append(row)
            else:
                same.remove(next(filter(is_same, same)))
        return left

    def examples(self, rows):
        extra = list((collections.Counter(rows) - self.count).elements())[:3]
        missing = list((self.count - collections.Counter(rows)).elements())[:3]
        return f"; extra {shortened(extra)}, missing {shortened(missing)}"


def shortened(rows):
    text = repr(rows)
    return text if len(text) < 400 else text[:400] + "…"
