"""Applies quotas: throttling of clients, and connection limits. An accepted request is never
dropped.

May import: kstore._fast.network, kstore.acls, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.protocol.
"""
