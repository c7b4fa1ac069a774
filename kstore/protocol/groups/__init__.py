"""Messages of groups: FindCoordinator, the classic, consumer and streams protocols, the embedded
messages of members, committed offsets. It knows no group's state.

May import: kstore.protocol.
"""
