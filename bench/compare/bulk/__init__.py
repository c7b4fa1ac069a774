"""Large batches by ready-made requests, beside Kafka and beside a bare server (bare_server.py) that
only receives, writes and answers; batches.py makes the rows.
"""

from bench.compare.bulk.batches import rows

__all__ = ["rows"]
