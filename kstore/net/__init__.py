"""The asyncio code around sockets (transport.py), SASL and TLS.

May import: kstore.config, kstore.errors, kstore.protocol.
"""
