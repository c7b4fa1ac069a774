"""The state of a queue over a log, in a file that the processes of one machine share by mapping it.
It knows offsets, leases and times, and nothing of logs.

May import: kstore._fast.disk.threads, kstore._fast.record, kstore._fast.shared.shared_mutex.
"""
