"""What is known of the segments and can be created again from them: one LMDB environment per log
dir, checked before it is opened. It decides nothing about what is true: the segment files do.

May import: kstore._fast.log, kstore._fast.record, kstore.log, kstore.private_files.
"""
