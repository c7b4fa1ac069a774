"""Consumer groups of KIP-848: heartbeats, members, target assignments, the server-side assignors,
and members that still speak the classic protocol. It never changes a group but by records.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
