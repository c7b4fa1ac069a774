"""What the group, transaction and share coordinators share (Kafka's CoordinatorRuntime): which
broker serves which partition, loading, and unloading. This room makes no decisions about their
state.

May import: kstore._fast.broker, kstore._fast.log, kstore._fast.record, kstore.broker.runtime,
    kstore.broker.state.distribution, kstore.broker.state.metadata, kstore.config,
    kstore.errors, kstore.log, kstore.types.
"""
