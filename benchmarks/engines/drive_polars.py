"""Polars: its SQL and streaming engine over frames in memory (`memory`) or Parquet files (`parquet`)."""

from driver import serve, unknown_form


class Polars:
    def open(self, form, threads, directory):
        import polars

        if form not in ("memory", "parquet"):
            raise unknown_form(form, ["memory", "parquet"])
        if polars.thread_pool_size() != threads:
            raise RuntimeError(f"set POLARS_MAX_THREADS={threads}; the pool has {polars.thread_pool_size()}")
        self.polars = polars
        self.form = form
        self.context = polars.SQLContext()
        return polars.__version__

    def load(self, name, file, sort):
        if self.form == "memory":
            frame = self.polars.read_parquet(file).lazy()
        else:
            frame = self.polars.scan_parquet(file)
        self.context.register(name, frame)

    def stored_bytes(self, name):
        return None

    def run(self, sql):
        return self.context.execute(sql, eager=False).collect(engine="streaming")

    def table(self, result):
        return result.to_arrow()

    def drop(self, name):
        self.context.unregister(name)


serve(Polars())
