"""Reads by path: byte ranges of segment files and row groups of archives. It asks no broker.

May import: kstore._fast.log, kstore._fast.record, kstore.clients.io, kstore.log, kstore.pipeline,
    kstore.record, kstore.types.
"""
