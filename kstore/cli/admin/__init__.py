"""Commands for administrators: topics, groups, configs, ACLs, quotas, users, features,
reassignments. They decide nothing: the admin client asks, the broker answers.

May import: kstore.acls, kstore.cli, kstore.clients, kstore.errors, kstore.types.
"""
