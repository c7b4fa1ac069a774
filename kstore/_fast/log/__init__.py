"""The log engine in C: segment files, the append core, views for readers, producers, epochs and
compaction. It knows no broker and no connection; settings come as arguments.

May import: kstore._fast, kstore._fast.record.
"""
