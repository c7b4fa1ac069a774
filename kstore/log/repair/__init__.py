"""Parts of a log that are damaged or lost, written again from the batches that another replica
has. It never changes a whole, valid batch.

May import: kstore._fast.log, kstore.log.local, kstore.log.recovery, kstore.log.segments,
    kstore.record.
"""
