"""Quotas in use: who is throttled, and how many connections there may be. It never drops a
request that was taken.

May import: kstore._fast.broker, kstore.acls, kstore.broker.coordination,
    kstore.broker.runtime.broker, kstore.broker.runtime.metadata,
    kstore.broker.state.bounded_cache, kstore.broker.state.quotas, kstore.config, kstore.protocol.
"""
