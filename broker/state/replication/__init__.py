"""Replication's decisions: where a follower cuts its log, and which fetch sessions are kept. It
knows no log and no connection.

May import: nothing of kstore.
"""
