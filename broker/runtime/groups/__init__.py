"""Kafka's GroupCoordinator: shards that are loaded from their logs, timers, regular expressions,
and expansion gates. broker.state.groups makes the decisions.

May import: kstore._fast.broker, kstore._fast.record, kstore.acls, kstore.broker.coordination,
    kstore.broker.runtime, kstore.broker.state, kstore.config, kstore.errors, kstore.protocol,
    kstore.types.
"""
