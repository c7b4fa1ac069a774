"""The one asyncio shell around sockets (transport.py).

May import: kstore.config, kstore.errors, kstore.protocol.
"""
