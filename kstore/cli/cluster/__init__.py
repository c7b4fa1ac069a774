"""`kstore cluster`: a cluster of processes in one folder, started, watched and ended. It reaches
brokers as any client does.

May import: kstore.cli, kstore.clients, kstore.errors, kstore.net.
"""
