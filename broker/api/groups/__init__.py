"""Requests of groups: FindCoordinator, the classic, consumer and streams protocols, offsets. It
decides nothing; the group coordinator does.

May import: kstore.acls, kstore.broker.api, kstore.broker.api.metadata,
    kstore.broker.api.security, kstore.broker.runtime.broker, kstore.broker.runtime.groups,
    kstore.broker.runtime.topics, kstore.broker.runtime.transactions,
    kstore.broker.state.groups.consumer, kstore.broker.state.groups.coordinator,
    kstore.broker.state.groups.streams, kstore.errors, kstore.protocol, kstore.protocol.groups.
"""
