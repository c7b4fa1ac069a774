"""Handles requests of any API: processes wide requests in pieces and slices, and creates responses
with one error for all rows. It does not know topics and groups.

May import: kstore._fast.network, kstore._fast.protocol, kstore.broker.api,
    kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state, kstore.config,
    kstore.errors, kstore.protocol.
"""
