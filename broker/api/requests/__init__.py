"""Requests as such: wide ones in pieces and slices, and answers that give one error to all rows.
It knows no topic and no group.

May import: kstore._fast.broker, kstore._fast.protocol, kstore.broker.api,
    kstore.broker.api.metadata, kstore.broker.api.security, kstore.broker.runtime.broker,
    kstore.broker.runtime.slices, kstore.protocol, kstore.protocol.logs, kstore.protocol.security.
"""
