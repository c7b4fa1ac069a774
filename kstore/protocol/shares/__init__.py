"""Messages of share groups (KIP-932). It keeps no state of groups.

May import: kstore.protocol.
"""
