"""Messages of groups: FindCoordinator, the classic, consumer and streams protocols, the embedded
messages of members, committed offsets. It keeps no state of groups.

May import: kstore.protocol.
"""
