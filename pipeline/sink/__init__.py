"""The Spark sink: rows as batches, versions planned once, batches at given offsets. No batch passes
the driver without need; it knows no reader.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients, kstore.config,
    kstore.errors, kstore.pipeline, kstore.protocol.logs, kstore.protocol.transactions,
    kstore.record, kstore.types.
"""
