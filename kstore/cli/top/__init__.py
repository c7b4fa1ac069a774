"""``kstore top``: what brokers, topics and groups do, live at a terminal, or sample by sample in a
pipe. It asks the brokers' own APIs, and their HTTP listeners where they are named.

May import: kstore.cli, kstore.clients, kstore.errors, kstore.types.
"""
