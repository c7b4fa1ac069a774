"""The one asyncio shell of the clients: a loop in a thread, connections, and the cluster behind
bootstrap servers. What to decide is in kstore.clients.core.
"""
