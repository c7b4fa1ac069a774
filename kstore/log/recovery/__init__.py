"""Opens logs, and rebuilds from the segments what was lost: offsets, indexes, producers, epochs. It
never removes a whole, valid batch.

May import: kstore._fast.log, kstore.log.
"""
