"""Segment files without a broker: dump, verify and repair, as `kstore log` shows them. It never
appends, and changes nothing unless it is told to repair.

May import: kstore.log, kstore.record, kstore.types.
"""
