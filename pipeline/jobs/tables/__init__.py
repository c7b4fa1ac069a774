"""Topics as tables of a lakehouse (Apache Iceberg). The snapshots that add the rows also have the
progress, and a commit succeeds only on the snapshot that it was planned on. Spark writes the rows;
Iceberg's own Java library makes the commits in the driver's JVM.

May import: kstore.pipeline.columns, kstore.pipeline.errors, kstore.pipeline.jobs,
    kstore.pipeline.jobs.scans, kstore.types.
"""
