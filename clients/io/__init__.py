"""The asyncio shell of all clients: a loop in a thread, connections, and the cluster behind
bootstrap servers. kstore.clients.core makes the decisions.

May import: kstore._fast.clients, kstore.clients.core, kstore.config, kstore.errors, kstore.items,
    kstore.net, kstore.other_protocols, kstore.protocol, kstore.record, kstore.types,
    kstore.version.
"""
