"""The compiled part of kstore, in rooms by layer: record, protocol, log, broker, then network,
replication and clients. It never waits on the loop's thread for another thread and makes no Python
object per record.

May import: nothing of kstore.
"""
