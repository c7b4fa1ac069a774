"""Kafka's ReplicaManager: leading and following partitions, fetchers, in-sync replicas,
replication throttles, repairs from other replicas. It never elects; the controller does.

May import: kstore._fast.broker, kstore._fast.replication, kstore.broker.coordination,
    kstore.broker.runtime.broker, kstore.broker.runtime.metadata, kstore.broker.runtime.peers,
    kstore.broker.runtime.slices, kstore.broker.state.metadata, kstore.broker.state.quotas,
    kstore.broker.state.replication, kstore.config, kstore.errors, kstore.log, kstore.protocol,
    kstore.protocol.controller, kstore.protocol.logs, kstore.types.
"""
