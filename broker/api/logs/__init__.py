"""Requests about logs: ListOffsets, leader epochs, log dirs. It reads logs and changes none but
by moves.

May import: kstore._fast.broker, kstore.broker.api, kstore.broker.api.requests,
    kstore.broker.coordination, kstore.broker.runtime.broker, kstore.broker.runtime.log_dirs,
    kstore.broker.runtime.slices, kstore.broker.state.metadata, kstore.errors, kstore.log,
    kstore.protocol.logs, kstore.types.
"""
