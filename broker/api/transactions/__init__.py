"""Requests about transactions: producer ids, adding partitions, ending transactions, and requests
of administrators. The transaction coordinator makes the decisions.

May import: kstore._fast.broker, kstore.acls, kstore.broker.api, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.errors, kstore.protocol.schema,
    kstore.protocol.transactions, kstore.types.
"""
