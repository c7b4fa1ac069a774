"""Share groups (KIP-932): heartbeats, members, the assignment of partitions that several members
share, and the stages of the share-partitions' state. Only records change a group.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
