"""Messages of groups: FindCoordinator, the classic, consumer and streams protocols, what members
tell each other, committed offsets. It knows no group's state.

May import: kstore.protocol.
"""
