"""Opens logs, and rebuilds lost offsets, indexes, producers and epochs from the segments. It never
removes a whole, valid batch.

May import: kstore._fast.log, kstore.log.
"""
