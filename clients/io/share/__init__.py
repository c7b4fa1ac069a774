"""The share consumer on its loop (KIP-932): membership, fetches, acknowledgements.
kstore.clients.core.share makes the decisions.

May import: kstore.clients.core, kstore.clients.io, kstore.errors, kstore.protocol, kstore.types.
"""
