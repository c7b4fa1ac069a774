"""The console's data of a cluster: connections per session, samples over time, records, plans to
reset offsets. It renders nothing and knows nothing about HTTP.

May import: kstore.cli.records, kstore.clients, kstore.errors, kstore.protocol.logs, kstore.types.
"""
