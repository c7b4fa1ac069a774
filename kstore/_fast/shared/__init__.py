"""What processes that use one log share: a page in memory with a lock that survives its holder, and
where the log ends; and the news that a file has changed. It knows nothing about logs.

May import: kstore._fast.disk.threads, kstore._fast.shared.shared_mutex.
"""
