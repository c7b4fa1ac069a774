"""PySpark finds the data source "kstore" here: it searches every top-level package called pyspark_*
for a DefaultSource. Importing it sets PYSPARK_PYTHON and Spark's mode of Unix sockets in the
environment, unless they are set (kstore.pipeline.source).

May import: kstore.pipeline.
"""

from kstore.pipeline.source import KstoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
