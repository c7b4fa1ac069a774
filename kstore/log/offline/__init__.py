"""Segment files without a broker: dump, verify and repair, as `kstore log` shows them. It never
appends, and changes files only to repair them.

May import: kstore.env, kstore.log, kstore.record, kstore.types.
"""
