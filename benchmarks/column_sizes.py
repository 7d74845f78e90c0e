#!/usr/bin/env python3
"""Columns of Parquet files as files of their own, and how many bytes Parquet, DuckDB and ClickHouse take for them.

    benchmarks/column_sizes.py OUT FILE.parquet...
    KEIRIN_COLUMNS=OUT cargo run --release -p keirin-bench-kernels -- encodings --only column

A column is the first 262,144 rows: NAME.i16, .i32, .i64 or .f64 little endian, or NAME.text behind its NAME.ends
(i32); nulls are zeros and empty text. Decimals, dates and times are the integers that they are. OUT/sizes.json has
the bytes of each column for Parquet (Snappy; ZSTD 3) and ClickHouse (LZ4; ZSTD 3), and of all columns of a file
together for DuckDB, whose blocks of 256 KiB say little about one column.
"""

import json
import os
import sys
import tempfile

import duckdb
import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROWS = 262_144


def plain(column):
    """The values as integers, doubles or text without nulls, and the extension; None for other types."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return pc.fill_null(column.cast(pa.binary()), b""), "text"
    if pa.types.is_decimal(kind):
        scaled = [0 if value is None else int(value.scaleb(kind.scale)) for value in column.to_pylist()]
        return pa.array(scaled, pa.int64()), "i64"
    if pa.types.is_floating(kind):
        return pc.fill_null(column.cast(pa.float64()), 0.0), "f64"
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        column, kind = column.cast(pa.int64()), pa.int64()
    if pa.types.is_date32(kind):
        column, kind = column.cast(pa.int32()), pa.int32()
    if pa.types.is_integer(kind):
        wanted = {8: pa.int16(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
        return pc.fill_null(column.cast(wanted, safe=False), 0), f"i{wanted.bit_width}"
    return None


def export(column, extension, path):
    if extension == "text":
        array = pa.concat_arrays([column]) if column.offset else column
        offsets = numpy.frombuffer(array.buffers()[1], numpy.int32)[: len(array) + 1]
        offsets[1:].tofile(f"{path}.ends")
        with open(f"{path}.text", "wb") as file:
            file.write(memoryview(array.buffers()[2] or b"")[: offsets[-1]])
    else:
        column.to_numpy(zero_copy_only=False).tofile(f"{path}.{extension}")


def parquet_bytes(table, codec):
    with tempfile.NamedTemporaryFile() as file:
        level = 3 if codec == "zstd" else None
        pq.write_table(table, file.name, compression=codec, compression_level=level, row_group_size=ROWS)
        group = pq.ParquetFile(file.name).metadata.row_group(0)
        return {name: group.column(index).total_compressed_size for index, name in enumerate(table.column_names)}


def duckdb_bytes(table):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t.db"
        with duckdb.connect(path) as connection:
            connection.register("source", table)
            connection.execute("CREATE TABLE t AS FROM source")
            connection.execute("CHECKPOINT")
        return os.path.getsize(path)


def clickhouse_bytes(table, codec):
    try:
        from chdb import session
    except ImportError:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, f"{folder}/t.parquet")
        chdb = session.Session(f"{folder}/db")
        kinds = {"int16": "Int16", "int32": "Int32", "int64": "Int64", "double": "Float64", "binary": "String"}
        columns = ", ".join(f"`{field.name}` {kinds[str(field.type)]} CODEC({codec})" for field in table.schema)
        chdb.query("CREATE DATABASE d ENGINE = Atomic")
        chdb.query(
            f"CREATE TABLE d.t ({columns}) ENGINE = MergeTree ORDER BY tuple() SETTINGS min_bytes_for_wide_part = 0"
        )
        chdb.query(f"INSERT INTO d.t SELECT * FROM file('{folder}/t.parquet')")
        chdb.query("OPTIMIZE TABLE d.t FINAL")
        rows = chdb.query(
            "SELECT name, data_compressed_bytes FROM system.columns WHERE database = 'd' AND table = 't'", "JSONCompact"
        )
        sizes = {name: int(size) for name, size in json.loads(str(rows))["data"]}
        chdb.close()
        return sizes


def main(out, paths):
    os.makedirs(out, exist_ok=True)
    sizes = {}
    for path in paths:
        file = os.path.basename(path).split(".")[0]
        source = next(pq.ParquetFile(path).iter_batches(batch_size=ROWS))
        columns = {}
        for name, column in zip(source.schema.names, source.columns):
            if (found := plain(column)) is not None:
                columns[name] = found[0]
                export(*found, f"{out}/{file}.{name}")
        table = pa.table(columns)
        by = {
            "parquet snappy": parquet_bytes(table, "snappy"),
            "parquet zstd": parquet_bytes(table, "zstd"),
            "clickhouse lz4": clickhouse_bytes(table, "LZ4"),
            "clickhouse zstd": clickhouse_bytes(table, "ZSTD(3)"),
        }
        for name in columns:
            sizes[f"{file}.{name}"] = {engine: found[name] for engine, found in by.items() if name in found}
        sizes[file] = {"duckdb": duckdb_bytes(table)}
    with open(f"{out}/sizes.json", "w") as file:
        json.dump(sizes, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
