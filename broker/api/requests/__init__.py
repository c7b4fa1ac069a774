"""Handling of requests of any API: wide requests in pieces and slices, and answers that give one
error to all rows. It knows nothing about topics and groups.

May import: kstore._fast.network, kstore._fast.protocol, kstore.broker.api, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.protocol.
"""
