"""The console's pages: a module per part of the cluster, with its templates beside it.

May import: kstore.acls, kstore.cli, kstore.clients, kstore.config, kstore.console.cluster,
    kstore.errors, kstore.types.
"""
