"""Shared by the group, transaction and share coordinators (Kafka's CoordinatorRuntime): which
broker serves which partition, loading, and unloading. The state that they keep is decided
elsewhere.

May import: kstore._fast.broker, kstore._fast.log, kstore._fast.record, kstore.broker.runtime,
    kstore.broker.state.distribution, kstore.broker.state.metadata, kstore.config,
    kstore.errors, kstore.log, kstore.types.
"""
