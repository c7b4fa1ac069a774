"""The logs of this process (Kafka's LogManager): log dirs, their owners, retention, moves between
them, batched syncs. It never answers a request.

May import: kstore._fast.broker, kstore._fast.record, kstore.broker.runtime.broker,
    kstore.broker.runtime.replication, kstore.broker.state.metadata,
    kstore.broker.state.replication, kstore.config, kstore.errors, kstore.log,
    kstore.private_files, kstore.protocol, kstore.protocol.logs, kstore.record, kstore.types.
"""
