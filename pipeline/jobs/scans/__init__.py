"""Scans of a cluster or an archive: records, holes, and blocks with digests; and how executors read
from brokers. It writes nothing and compares nothing.

May import: kstore._fast.record, kstore.clients.io, kstore.clients.replicator,
    kstore.config.client, kstore.errors, kstore.pipeline, kstore.record, kstore.types.
"""
