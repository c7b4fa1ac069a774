"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup. It does not know
consumer and streams groups.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
