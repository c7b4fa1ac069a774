"""Messages of share groups (KIP-932). It knows no group's state.

May import: kstore.protocol.
"""
