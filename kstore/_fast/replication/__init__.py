"""The follower's side of replication: what one leader is asked for, and the loop that copies it.
It never decides where a log is cut; broker.state.replication does.

May import: kstore._fast.broker, kstore._fast.error_codes, kstore._fast.log,
    kstore._fast.protocol, kstore._fast.record.
"""
