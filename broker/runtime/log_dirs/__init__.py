"""The logs of this process (Kafka's LogManager): log dirs, their owners, retention, moves between
them, batched syncs. It does not answer requests.

May import: kstore._fast.broker, kstore._fast.disk, kstore._fast.log, kstore._fast.network,
    kstore._fast.record, kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state,
    kstore.config, kstore.errors, kstore.log, kstore.private_files, kstore.record, kstore.types.
"""
