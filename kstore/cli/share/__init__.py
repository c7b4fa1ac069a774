"""``kstore share``: records of share groups (KIP-932).

May import: kstore.cli, kstore.cli.records, kstore.clients, kstore.config, kstore.errors.
"""
