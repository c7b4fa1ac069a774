"""``kstore top``: what brokers, topics and groups do, live at a terminal, or sample by sample in a
pipe. It uses the brokers' APIs, and their HTTP listeners if they are named.

May import: kstore.cli, kstore.clients, kstore.errors, kstore.types.
"""
