"""Requests about logs: ListOffsets, leader epochs, log dirs. It reads logs and changes none but
by moves.

May import: kstore._fast.broker, kstore.broker.api, kstore.broker.coordination,
    kstore.broker.runtime, kstore.broker.state, kstore.errors, kstore.log, kstore.protocol.logs,
    kstore.types.
"""
