"""Clients under other libraries' names, on kstore's own clients: programs that were written for
those libraries run with one import changed.

May import: nothing of kstore.
"""
