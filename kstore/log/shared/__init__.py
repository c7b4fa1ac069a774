"""A log dir that several processes write to: its members, the one that does the maintenance, and
how each applies the changes of the others. The core appends.

May import: kstore._fast.log, kstore._fast.shared, kstore.log, kstore.private_files, kstore.types.
"""
