"""The broker's decisions as pure code: no loop, clock or files. Times and ids are arguments.

May import: kstore.errors, kstore.protocol.
"""
