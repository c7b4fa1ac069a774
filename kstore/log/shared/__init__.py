"""One log dir that several processes write to: who of them is in, which one does the maintenance,
and how each takes in what the others have done to a log. Appending is the core's.

May import: kstore._fast.log, kstore._fast.shared, kstore.log, kstore.private_files, kstore.types.
"""
