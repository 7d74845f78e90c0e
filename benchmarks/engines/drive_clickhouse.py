"""ClickHouse, embedded (chDB): MergeTree with LZ4 or ZSTD(3) and the table's sort key, its Memory engine, or views over
Parquet files.

Three defaults are changed, see ../README.md: the query condition cache is off (hot runs would
measure it), joins give NULL for missing rows, and the codec is LZ4 (this build's is ZSTD(3)).
"""

import pyarrow
import pyarrow.parquet

from driver import quoted, serve, unknown_form

SETTINGS = "use_query_condition_cache = 0, join_use_nulls = 1, output_format_arrow_string_as_string = 1"

# By the form that stores tables with it.
CODECS = {"mergetree": "LZ4", "mergetree-zstd": "ZSTD(3)"}

TYPES = {
    "bool": "Bool", "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64",
    "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "float": "Float32", "double": "Float64", "string": "String", "date32[day]": "Date32",
}  # fmt: skip


def column_type(field):
    """The ClickHouse type of a Parquet column: as in ClickBench's create.sql, NULL only where it may be."""
    if pyarrow.types.is_decimal(field.type):
        name = f"Decimal({field.type.precision}, {field.type.scale})"
    elif pyarrow.types.is_timestamp(field.type):
        name = "DateTime('UTC')"
    else:
        name = TYPES[str(field.type)]
    return f"Nullable({name})" if field.nullable else name


class ClickHouse:
    def open(self, form, threads, directory):
        from chdb import session

        if form not in (*CODECS, "memory", "parquet"):
            raise unknown_form(form, [*CODECS, "memory", "parquet"])
        self.form = form
        self.codec = CODECS.get(form)
        self.session = session.Session(directory)
        self.session.query("CREATE DATABASE bench ENGINE = Atomic")
        self.session.query("USE bench")
        self.session.query(f"SET max_threads = {threads}, {SETTINGS}")
        applied = self.session.query("SELECT getSetting('use_query_condition_cache'), getSetting('max_threads')", "CSV")
        if str(applied).strip() not in (f"false,{threads}", f"0,{threads}"):
            raise RuntimeError(f"the settings did not stick: {applied}")
        self.times = {}
        return str(self.session.query("SELECT version()", "TSV")).strip()

    def load(self, name, file, sort):
        schema = pyarrow.parquet.read_schema(file)
        columns = ", ".join(f"`{field.name}` {column_type(field)}" for field in schema)
        if self.form == "parquet":
            columns = f"file({quoted(file)}, Parquet, {quoted(columns)})"
            self.session.query(f"CREATE VIEW {name} AS SELECT * FROM {columns}")
            return
        storage = "Memory"
        if self.codec:
            key = ", ".join(f"`{column}`" for column in sort) or "tuple()"
            storage = f"MergeTree ORDER BY ({key}) SETTINGS default_compression_codec = '{self.codec}'"
        self.session.query(f"CREATE TABLE {name} ({columns}) ENGINE = {storage}")
        self.session.query(f"INSERT INTO {name} SELECT * FROM file({quoted(file)}, Parquet)")

    def stored_bytes(self, name):
        if not self.codec:
            return None
        self.session.query(f"OPTIMIZE TABLE {name} FINAL")
        here = f"active AND database = 'bench' AND table = {quoted(name)}"
        return int(str(self.session.query(f"SELECT sum(bytes_on_disk) FROM system.parts WHERE {here}", "TSV")))

    def run(self, sql):
        return sql, self.session.query(sql, "Arrow").bytes()

    def table(self, result):
        sql, data = result
        if not data:
            return pyarrow.table({})
        table = pyarrow.ipc.open_file(pyarrow.BufferReader(data)).read_all()
        # Arrow output has DateTime as a plain number of seconds.
        for index in self.time_columns(sql):
            column = table.column(index).cast("int64").cast(pyarrow.timestamp("s"))
            table = table.set_column(index, table.column_names[index], column)
        return table

    def time_columns(self, sql):
        """Which columns of the answer are DateTime."""
        if sql not in self.times:
            described = str(self.session.query(f"DESCRIBE ({sql})", "TSV")).splitlines()
            self.times[sql] = [i for i, line in enumerate(described) if line.split("\t")[1].startswith("DateTime(")]
        return self.times[sql]

    def drop(self, name):
        self.session.query(f"DROP TABLE {name} SYNC")


serve(ClickHouse())
