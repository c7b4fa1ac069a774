"""What the group and the transaction coordinator share (Kafka's CoordinatorRuntime): which
partitions are whose, loading and leaving them. It decides nothing about groups and transactions.

May import: kstore._fast.record, kstore.broker.runtime.broker, kstore.broker.runtime.groups,
    kstore.broker.runtime.topics, kstore.broker.runtime.transactions,
    kstore.broker.state.metadata, kstore.config, kstore.errors, kstore.log, kstore.types.
"""
