"""What opening a log finds, and what is made anew from the segments: offsets, indexes, producers,
epochs. It never removes a whole, valid batch.

May import: kstore._fast.log, kstore.log.
"""
