"""What the group, transaction and share coordinators have in common (Kafka's CoordinatorRuntime):
which partitions are whose, loading and leaving them. It decides nothing about what they keep.

May import: kstore._fast.broker, kstore._fast.log, kstore._fast.record, kstore.broker.runtime,
    kstore.broker.state.distribution, kstore.broker.state.metadata, kstore.config,
    kstore.errors, kstore.log, kstore.types.
"""
