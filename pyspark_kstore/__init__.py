"""Where PySpark finds the data source "kstore" without being told: it looks into every top-level
package called pyspark_* for a DefaultSource. Nothing else is here.

May import: kstore.pipeline.
"""

from kstore.pipeline.source import KstoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
