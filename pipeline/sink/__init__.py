"""The Spark sink: rows as batches, versions planned once, batches at given offsets. No record
passes the driver without need; it knows no reader.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients, kstore.config,
    kstore.errors, kstore.pipeline, kstore.protocol.transactions, kstore.record, kstore.types.
"""
