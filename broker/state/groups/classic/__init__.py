"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup as steps on a value.
It knows nothing of consumer and streams groups.

May import: kstore.broker.state, kstore.errors, kstore.protocol.
"""
