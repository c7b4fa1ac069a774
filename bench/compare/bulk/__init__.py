"""Large batches in ready-made requests, compared with Kafka and with a bare server (bare_server.py)
that only receives, writes and answers; batches.py makes the rows.
"""

from bench.compare.bulk.batches import rows

__all__ = ["rows"]
