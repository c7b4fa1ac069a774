"""Quotas in use: who is throttled, and how many connections there may be. It never drops a
request that was taken.

May import: kstore._fast.network, kstore.acls, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.protocol.
"""
