"""Kafka's GroupCoordinator on the loop: shards loaded from their logs, timers, regular
expressions and gates of expansion. It decides nothing; broker.state.groups does.

May import: kstore._fast.record, kstore.acls, kstore.broker.coordination,
    kstore.broker.runtime.broker, kstore.broker.runtime.coordinators,
    kstore.broker.runtime.timers, kstore.broker.runtime.topics, kstore.broker.state.bounded_cache,
    kstore.broker.state.groups, kstore.broker.state.groups.consumer,
    kstore.broker.state.groups.coordinator, kstore.broker.state.linear_regex,
    kstore.broker.state.metadata, kstore.errors, kstore.protocol,
    kstore.protocol.coordinator_records, kstore.protocol.logs, kstore.types.
"""
