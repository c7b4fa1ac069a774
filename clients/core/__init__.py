"""Decisions of the clients, without sockets, clocks and threads: versions, metadata, batches.

May import: kstore._fast.record, kstore.errors, kstore.protocol, kstore.record, kstore.types.
"""
