"""The Spark sink: encodes rows as batches, plans each version once, and writes batches at given
offsets. It passes batches through the driver only if necessary; it does not read topics.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients, kstore.config,
    kstore.errors, kstore.pipeline, kstore.protocol.logs, kstore.protocol.transactions,
    kstore.record, kstore.types.
"""
