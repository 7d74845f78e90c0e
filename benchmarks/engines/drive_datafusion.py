"""DataFusion, as released: tables in memory (`memory`) or over Parquet files (`parquet`)."""

from driver import quoted, serve, unknown_form


class DataFusion:
    def open(self, form, threads, directory):
        import datafusion

        if form not in ("memory", "parquet"):
            raise unknown_form(form, ["memory", "parquet"])
        self.form = form
        config = datafusion.SessionConfig().with_target_partitions(threads)
        self.context = datafusion.SessionContext(config)
        return datafusion.__version__

    def load(self, name, file, sort):
        source = name if self.form == "parquet" else f"{name}_file"
        self.execute(f"CREATE EXTERNAL TABLE {source} STORED AS PARQUET LOCATION {quoted(file)}")
        if self.form == "memory":
            self.execute(f"CREATE TABLE {name} AS SELECT * FROM {source}")
            self.execute(f"DROP TABLE {source}")

    def execute(self, sql):
        self.context.sql(sql).collect()

    def stored_bytes(self, name):
        return None

    def run(self, sql):
        frame = self.context.sql(sql)
        return frame.schema(), frame.collect()

    def table(self, result):
        import pyarrow

        schema, batches = result
        return pyarrow.Table.from_batches(batches, schema=batches[0].schema if batches else schema)

    def drop(self, name):
        self.execute(f"DROP TABLE {name}")


serve(DataFusion())
