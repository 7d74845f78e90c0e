"""The engine's side of the benchmark protocol, shared by all drivers.

One JSON object a line: requests on standard input, one reply each on standard output.

  {"do":"open","form":F,"threads":N,"directory":D}        -> {"reply":"opened","version":V}
  {"do":"load","table":{"name":T,"file":P,"sort":[C..]}}  -> {"reply":"loaded","ns":N,"bytes":B}
  {"do":"run","sql":S}              -> {"reply":"answer","ns":N,"columns":[..],"rows":[[..]..]}
  {"do":"drop","name":T}                                  -> {"reply":"dropped"}
  anything that fails                                     -> {"reply":"error","message":M}

`ns` of an answer is the time inside the engine: from the SQL text to the whole result in the
engine's own memory. Turning it into JSON comes after the clock has stopped.
`bytes` is what the table takes on disk, null where it is not on disk.
Numbers are JSON numbers, dates and times ISO text without a zone, everything else text.
Of an answer of more than 100,000 rows a digest is sent, one row: how many rows there are, and of each column how many
values, their sum (of texts that of their bytes), the least and the greatest.
"""

import datetime
import decimal
import json
import math
import os
import sys
import time

ROWS_MAX = 100_000


def cell(value):
    """One value of a result as the runner compares it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def rows_of(table):
    """The rows of a pyarrow table; by position, as names may repeat."""
    columns = [[cell(value) for value in column.to_pylist()] for column in table.columns]
    return [list(row) for row in zip(*columns)]


def digest(table):
    """What stands for the rows of a pyarrow table that has many: names, and one row."""
    import pyarrow
    import pyarrow.compute

    names, row = ["rows"], [table.num_rows]
    for name, column in zip(table.column_names, table.columns):
        kind = column.type
        if pyarrow.types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        is_text = not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind))
        column = column.cast(pyarrow.large_string() if is_text else pyarrow.float64(), safe=False)
        summed = pyarrow.compute.binary_length(column) if is_text else column
        bounds = pyarrow.compute.min_max(column)
        names += [f"{name}: {what}" for what in ("count", "sum", "least", "greatest")]
        row += [
            table.num_rows - column.null_count,
            pyarrow.compute.sum(summed).as_py(),
            bounds["min"].as_py(),
            bounds["max"].as_py(),
        ]
    return names, [[cell(value) for value in row]]


def serve(engine):
    """Answers requests with `engine` until standard input ends.

    An engine has open(form, threads, directory) -> version, load(name, file, sort), drop(name),
    run(sql) -> result, table(result) -> pyarrow table, and stored_bytes(name) -> bytes on disk or None, which
    may also put in order what was loaded; only load and run are timed.
    """
    # Whatever a library prints must not get between the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = answer(engine, request)
        except BaseException as error:  # some engines panic through exceptions of their own
            if isinstance(error, KeyboardInterrupt):
                raise
            reply = {"reply": "error", "message": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply, allow_nan=False) + "\n")
        replies.flush()


def answer(engine, request):
    """One request, done."""
    match request["do"]:
        case "open":
            version = engine.open(request["form"], request["threads"], request["directory"])
            return {"reply": "opened", "version": version}
        case "load":
            table = request["table"]
            start = time.perf_counter_ns()
            engine.load(table["name"], table["file"], table["sort"])
            elapsed_ns = time.perf_counter_ns() - start
            return {"reply": "loaded", "ns": elapsed_ns, "bytes": engine.stored_bytes(table["name"])}
        case "run":
            start = time.perf_counter_ns()
            result = engine.run(request["sql"])
            elapsed_ns = time.perf_counter_ns() - start
            table = engine.table(result)
            large = table.num_rows > ROWS_MAX
            columns, rows = digest(table) if large else (table.column_names, rows_of(table))
            return {"reply": "answer", "ns": elapsed_ns, "columns": columns, "rows": rows}
        case "drop":
            engine.drop(request["name"])
            return {"reply": "dropped"}
        case other:
            raise ValueError(f"unknown request {other!r}")


def quoted(text):
    """`text` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def unknown_form(form, known):
    """What to raise when asked for a form the driver does not have."""
    return ValueError(f"no form {form!r}; there are {', '.join(known)}")
