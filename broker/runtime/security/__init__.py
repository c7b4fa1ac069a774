"""Listeners with TLS and SASL, authentication, ACLs in the coordination store, and the audit log.
It never answers for a request that was not authenticated.

May import: kstore._fast.network, kstore.acls, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.errors, kstore.net, kstore.protocol.
"""
