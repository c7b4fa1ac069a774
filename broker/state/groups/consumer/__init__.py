"""Consumer groups (KIP-848): heartbeats, members, target assignments, the server-side assignors,
and members with the classic protocol. Only records change a group.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
