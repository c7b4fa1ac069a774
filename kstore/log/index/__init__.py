"""The index of the segments, which can be rebuilt from them: one LMDB environment per log dir,
checked before it is opened. The segment files are authoritative.

May import: kstore._fast.log, kstore._fast.record, kstore.log, kstore.private_files.
"""
