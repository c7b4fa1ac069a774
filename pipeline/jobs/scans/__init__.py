"""What a scan of a cluster or an archive finds: records, holes, and blocks with digests; how
executors ask brokers for it. It writes nothing and compares nothing.

May import: kstore._fast.record, kstore.clients.io, kstore.clients.replicator,
    kstore.config.client, kstore.errors, kstore.pipeline, kstore.record, kstore.types.
"""
