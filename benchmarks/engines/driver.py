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
"""

import datetime
import decimal
import json
import math
import os
import sys
import time


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
            return {"reply": "answer", "ns": elapsed_ns, "columns": table.column_names, "rows": rows_of(table)}
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
