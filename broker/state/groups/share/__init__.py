"""Share groups of KIP-932: heartbeats, members, the assignment of partitions that several members
share, and what is known of the share partitions' state. It never changes a group but by records.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
