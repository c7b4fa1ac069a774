"""`kstore.scan`: a topic as a stream of Arrow record batches on one machine, for DuckDB, Polars,
pandas and other readers of Arrow. It uses the readers of the Spark source. It needs no Spark, and
pyarrow only for some methods and to read an archive.

May import: kstore._fast.record, kstore.config.client, kstore.items, kstore.pipeline,
    kstore.pipeline.segments, kstore.record, kstore.types.
"""
