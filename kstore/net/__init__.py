"""The one asyncio shell around sockets (transport.py)."""
