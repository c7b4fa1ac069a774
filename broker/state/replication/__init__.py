"""Decisions of replication: where a follower truncates its log, and which fetch sessions are kept.
It uses no logs or connections.

May import: nothing of kstore.
"""
