"""Connections of a broker's clients (Kafka's SocketServer): frames in, answers out in order, and
what all connections share. It decides nothing about a request; the paths and the server do.

May import: kstore._fast.broker, kstore._fast.error_codes, kstore._fast.log,
    kstore._fast.protocol, kstore._fast.record.buffer, kstore.other_protocols.
"""
