"""What waits for a disk on its own threads, without the GIL: write-back that begins early, reads
of what is not in the page cache, and a probe that asks whether a disk still answers. It knows file
descriptors, positions, sizes and folders, and nothing of logs.

May import: kstore._fast.disk.threads.
"""
