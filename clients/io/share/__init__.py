"""The share consumer on its loop (KIP-932): membership, fetching, acknowledging. What to decide is
in kstore.clients.core.share.

May import: kstore.clients.core, kstore.clients.io, kstore.errors, kstore.protocol, kstore.types.
"""
