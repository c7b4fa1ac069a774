"""Listeners with TLS and SASL, authentication, ACLs in the coordination store, and the audit log.
It never answers for a request that was not authenticated.

May import: kstore._fast.broker, kstore.acls, kstore.broker.coordination,
    kstore.broker.runtime.broker, kstore.broker.runtime.log_limit, kstore.broker.runtime.metadata,
    kstore.broker.runtime.peers, kstore.broker.runtime.slices, kstore.broker.state.security,
    kstore.config, kstore.errors, kstore.net, kstore.protocol, kstore.protocol.metadata,
    kstore.protocol.security.
"""
