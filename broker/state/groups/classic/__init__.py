"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup as steps on a value.
It knows nothing of consumer and streams groups.

May import: kstore.broker.state.groups, kstore.errors, kstore.protocol.
"""
