"""Requests about logs: ListOffsets, leader epochs, log dirs, CopyBatches. Only moves between log
dirs and CopyBatches change logs.

May import: kstore._fast.broker, kstore._fast.log, kstore._fast.record, kstore.acls,
    kstore.broker.api, kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state,
    kstore.errors, kstore.log, kstore.protocol.logs, kstore.record, kstore.types.
"""
