"""Consumer groups of KIP-848: heartbeats, members, target assignments, the server-side assignors,
and members that still speak the classic protocol. It never changes a group but by records.

May import: kstore.broker.state.groups, kstore.broker.state.groups.classic,
    kstore.broker.state.linear_regex, kstore.broker.state.metadata, kstore.errors,
    kstore.protocol, kstore.protocol.coordinator_records, kstore.protocol.groups.
"""
