"""Topics kept as tables of a lake (Apache Iceberg): how far a table has read is in the snapshots
that hold its rows, and a commit counts only on the snapshot that it was planned on. Rows are
written by Spark, commits are made by Iceberg's own Java library in the driver's JVM.

May import: kstore.pipeline.columns, kstore.pipeline.errors, kstore.pipeline.jobs,
    kstore.pipeline.jobs.scans, kstore.types.
"""
