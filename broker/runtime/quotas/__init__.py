"""Quotas at run time: throttling, and connection limits. A request that was accepted is never
dropped.

May import: kstore._fast.network, kstore.acls, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.protocol.
"""
