"""``kstore doctor``: checks of a machine and its settings, of the connections from a client to the
brokers, and of a running cluster. Each check is a small function with a row in a table (checks.py).
It changes nothing.

May import: kstore.acls, kstore.cli, kstore.clients, kstore.config, kstore.env, kstore.errors,
    kstore.net, kstore.types.
"""
