"""The hot path of the clients: a producer's open batches and what a fetch brought. It opens no
connection and knows nothing about brokers.

May import: kstore._fast.record, kstore.errors, kstore.types.
"""
