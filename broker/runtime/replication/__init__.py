"""Kafka's ReplicaManager: leading and following partitions, fetchers, in-sync replicas, replication
throttles, repairs from other replicas. The controller elects leaders.

May import: kstore._fast.broker, kstore._fast.network, kstore._fast.replication,
    kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state, kstore.config,
    kstore.errors, kstore.log, kstore.protocol, kstore.record, kstore.types.
"""
