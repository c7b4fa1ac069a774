"""The broker's decisions, pure: no loop, no clock, no files. Time and ids come in as arguments.

May import: kstore.errors, kstore.protocol.
"""
