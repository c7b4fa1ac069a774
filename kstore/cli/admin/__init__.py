"""Commands for administrators: topics, groups, configs, ACLs, quotas, users, features,
reassignments. The broker makes all decisions.

May import: kstore.acls, kstore.cli, kstore.clients, kstore.errors, kstore.types.
"""
