"""Rewrites damaged or lost parts of a log from another replica's batches. It never changes a whole,
valid batch.

May import: kstore._fast.log, kstore.log.local, kstore.log.recovery, kstore.log.segments,
    kstore.record.
"""
