"""Connections: without I/O (connection.py), and the one asyncio shell around sockets
(transport.py).
"""
