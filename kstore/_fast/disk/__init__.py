"""What waits for a disk on its own threads, without the GIL: write-back that begins early. It knows
file descriptors, positions and sizes, and nothing of logs.

May import: kstore._fast.disk.threads.
"""
