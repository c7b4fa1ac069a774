"""Decisions of a producer: which batch to send next, sequence numbers, transactions, partitioners.
It has no socket, clock or thread.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.core, kstore.errors,
    kstore.protocol.logs, kstore.protocol.transactions, kstore.record, kstore.types.
"""
