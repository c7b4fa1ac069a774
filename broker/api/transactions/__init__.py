"""Requests of transactions: producer ids, partitions, ends, and what administrators ask. It
decides nothing; the transaction coordinator does.

May import: kstore.acls, kstore.broker.api, kstore.broker.api.requests,
    kstore.broker.api.security, kstore.broker.runtime.broker, kstore.broker.runtime.coordinators,
    kstore.broker.runtime.groups, kstore.broker.runtime.slices, kstore.broker.runtime.topics,
    kstore.broker.runtime.transactions, kstore.broker.state.groups.coordinator,
    kstore.broker.state.metadata, kstore.broker.state.transactions, kstore.errors,
    kstore.protocol.transactions, kstore.types.
"""
