"""Segment files as such: their names, the damage in their bytes, and how a cleaned one takes the
place of others. It knows no log and no index.

May import: kstore._fast.disk, kstore._fast.log, kstore._fast.record, kstore.env, kstore.items,
    kstore.log, kstore.private_files, kstore.record, kstore.types.
"""
