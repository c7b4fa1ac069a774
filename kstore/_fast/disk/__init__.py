"""What waits for a disk on its own threads, without the GIL: write-back that begins early, and
reads of what is not in the page cache. It knows file descriptors, positions and sizes, and nothing
of logs.

May import: kstore._fast.disk.threads.
"""
