"""Segment files: their names, damage in their bytes, and the replacement of segments by a cleaned
one. It knows nothing about logs and indexes.

May import: kstore._fast.disk, kstore._fast.log, kstore._fast.record, kstore.env, kstore.items,
    kstore.log, kstore.private_files, kstore.record, kstore.types.
"""
