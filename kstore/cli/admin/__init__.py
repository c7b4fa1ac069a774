"""Commands for administrators: topics, groups, configs, ACLs, quotas, users, features,
reassignments. The broker makes all decisions.

May import: kstore.acls, kstore.cli, kstore.clients, kstore.config.nearest, kstore.errors,
kstore.types.
"""
