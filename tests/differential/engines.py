"""The engines, each a process or library that lives as long as its tables: Keirin's command line and DuckDB.

A statement is one text for both. What only one of them is to read stands in brackets: ⟪Keirin⟫, ⟦DuckDB⟧.
"""

import os
import re
import select
import subprocess
import tempfile
import threading
import time

ONLY_KEIRIN = re.compile("⟪([^⟫]*)⟫")
ONLY_DUCKDB = re.compile("⟦([^⟧]*)⟧")


def for_keirin(sql):
    return ONLY_KEIRIN.sub(r"\1", ONLY_DUCKDB.sub("", sql))


def for_duckdb(sql):
    return ONLY_DUCKDB.sub(r"\1", ONLY_KEIRIN.sub("", sql))


class Failed(Exception):
    """`kind` is error, crash or hang."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


FIELD = re.compile(r'"((?:[^"]|"")*)"(,|\n)|([^,\n]*)(,|\n)')


def parse_csv(text):
    """Rows of texts and None: a field without quotes that is empty is NULL, `""` is the empty text."""
    if '"' not in text:
        return [[field or None for field in line.split(",")] for line in text.split("\n")[:-1]]
    rows, row, at = [], [], 0
    while at < len(text):
        match = FIELD.match(text, at)
        if not match:
            raise Failed("crash", f"the answer is not CSV at {text[at:at + 40]!r}")
        at = match.end()
        row.append((match[3] or None) if match[1] is None else match[1].replace('""', '"'))
        if (match[2] or match[4]) == "\n":
            rows.append(row)
            row = []
    return rows


class Keirin:
    """A process of the command line, on a database directory or in memory. `begin` makes its tables: it runs again
    when a process in memory has died."""

    def __init__(self, program, database, timeout, begin=()):
        self.program, self.database, self.timeout, self.begin = program, database, timeout, list(begin)
        self.process, self.serial = None, 0
        self.script = tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8", newline="")

    def start(self):
        arguments = [self.program] + ([self.database] if self.database else [])
        # More threads than parts of a query would need, and the same on every machine.
        arguments += ["--threads", "4", "--memory-limit", "2GB", "--no-progress", "--init", os.devnull]
        pipe = subprocess.PIPE
        environment = dict(os.environ, TZ="UTC", NO_COLOR="1")
        self.process = subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        os.set_blocking(self.process.stdout.fileno(), False)
        os.set_blocking(self.process.stderr.fileno(), False)
        self.send(".bail off\n.format csv\n.headers off\n")
        if not self.database:
            for sql in self.begin:
                self.run(sql)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def run(self, sql):
        """The rows of the last statement of `sql`; of settings before it comes no row."""
        if not self.process:
            self.start()
        self.script.seek(0)
        self.script.truncate()
        self.script.write(for_keirin(sql) + "\n;\n")
        self.script.flush()
        out, err = self.send(f".read '{self.script.name}'\n")
        lines = [line for line in err.split("\n") if not line.startswith(("note: ", f"  in {self.script.name}"))]
        err = "\n".join(lines).strip().removeprefix("error: ")
        if err:
            panic = "panic" in err or "internal" in err.lower()
            raise Failed("crash" if panic else "error", err)
        return parse_csv(out)

    def send(self, text):
        self.serial += 1
        self.process.stderr.read()  # what tasks of the statement before said after its end
        mark = f"=mark={self.serial}=\n".encode()
        try:
            self.process.stdin.write(text.encode() + b".print " + mark)
            self.process.stdin.flush()
        except OSError:
            pass
        said = {self.process.stdout: bytearray(), self.process.stderr: bytearray()}
        out, err = said.values()
        open_pipes = list(said)
        deadline = time.monotonic() + self.timeout
        while open_pipes and not out.endswith(mark):
            ready, _, _ = select.select(open_pipes, [], [], max(0, deadline - time.monotonic()))
            if not ready:
                self.stop()
                raise Failed("hang", f"nothing for {self.timeout} s")
            for pipe in ready:
                chunk = os.read(pipe.fileno(), 1 << 20)
                said[pipe] += chunk
                if not chunk:
                    open_pipes.remove(pipe)
        if not out.endswith(mark):
            code = self.process.wait()
            self.stop()
            raise Failed("crash", f"the process ended with {code}: {err.decode(errors='replace')[-500:]}")
        err += self.process.stderr.read() or b""
        return out[: -len(mark)].decode(), err.decode()


class DuckDb:
    def __init__(self, timeout):
        import duckdb

        config = {"threads": 1, "memory_limit": "2GB", "temp_directory": tempfile.gettempdir()}
        self.connection = duckdb.connect(config=config)
        self.error, self.timeout = duckdb.Error, timeout
        # Chosen difference: NULLs come first in descending order.
        self.connection.execute("SET default_null_order = 'postgres'")

    def run(self, sql):
        """Rows, and the names of their types."""
        watch = threading.Timer(self.timeout, self.connection.interrupt)
        watch.start()
        try:
            cursor = self.connection.execute(for_duckdb(sql))
            return cursor.fetchall(), [str(column[1]) for column in cursor.description]
        except self.error as error:
            message = str(error)
            raise Failed("hang" if "INTERRUPT" in message else "error", message) from None
        finally:
            watch.cancel()
