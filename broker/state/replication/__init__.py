"""Decisions of replication: where a follower truncates its log, and which fetch sessions are
evicted. It uses no logs or connections.

May import: nothing of kstore.
"""
