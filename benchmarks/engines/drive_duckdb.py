"""DuckDB: its own file (`native`), its own tables in memory (`memory`), or views over Parquet."""

import os

from driver import quoted, serve, unknown_form


class DuckDB:
    def open(self, form, threads, directory):
        import duckdb

        if form not in ("native", "memory", "parquet"):
            raise unknown_form(form, ["native", "memory", "parquet"])
        self.form = form
        self.path = os.path.join(directory, "bench.duckdb") if form == "native" else ":memory:"
        self.connection = duckdb.connect(self.path)
        self.connection.execute(f"SET threads = {threads}")
        self.connection.execute("SET enable_progress_bar = false")
        return duckdb.__version__

    def load(self, name, file, sort):
        if self.form == "native":
            # Blocks of dropped tables count as used until then.
            self.connection.execute("CHECKPOINT")
        self.bytes_before = self.used_bytes()
        kind = "VIEW" if self.form == "parquet" else "TABLE"
        self.connection.execute(f"CREATE {kind} {name} AS SELECT * FROM read_parquet({quoted(file)})")
        if self.form == "native":
            self.connection.execute("CHECKPOINT")

    def used_bytes(self):
        # The file keeps the blocks of dropped tables, and a new table may lie in them.
        if self.form != "native":
            return None
        sizes = "SELECT sum(block_size * used_blocks) FROM pragma_database_size()"
        # All rows are fetched: a result with rows left would be in the way of the next query.
        return int(self.connection.execute(sizes).fetchall()[0][0])

    def stored_bytes(self, name):
        return self.used_bytes() - self.bytes_before if self.form == "native" else None

    def run(self, sql):
        return self.connection.sql(sql).to_arrow_table()

    def table(self, result):
        return result

    def drop(self, name):
        self.connection.execute(f"DROP {'VIEW' if self.form == 'parquet' else 'TABLE'} {name}")


serve(DuckDB())
