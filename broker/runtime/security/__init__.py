"""Listeners with TLS and SASL, authentication, ACLs in the coordination store, and the audit log.
No request is answered before the authentication that its listener requires.

May import: kstore._fast.network, kstore.acls, kstore.broker.coordination, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.errors, kstore.net, kstore.protocol.
"""
