"""`kstore.scan`: a topic as a stream of Arrow record batches on one machine, for DuckDB, Polars,
pandas and whatever else takes one, by the readers of the Spark source. Spark is not needed, and
pyarrow only where it is asked for or an archive is read.

May import: kstore._fast.record, kstore.config.client, kstore.items, kstore.pipeline,
    kstore.pipeline.segments, kstore.record, kstore.types.
"""
