"""Requests as such: wide ones in pieces and slices, and answers that give one error to all rows.
It knows no topic and no group.

May import: kstore._fast.network, kstore._fast.protocol, kstore.broker.api, kstore.broker.runtime,
    kstore.broker.state, kstore.config, kstore.protocol.
"""
