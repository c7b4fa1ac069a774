"""Reads files: byte ranges of segments and row groups of archives. It sends no requests.

May import: kstore._fast.log, kstore._fast.record, kstore.clients.io, kstore.log, kstore.pipeline,
    kstore.record, kstore.types.
"""
