"""What opening a log finds, and what is rebuilt from the segments: offsets, indexes, producers,
epochs. It never removes a whole, valid batch.

May import: kstore._fast.log, kstore.log.
"""
