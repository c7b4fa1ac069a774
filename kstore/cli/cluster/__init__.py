"""`kstore cluster`: a cluster of processes in one folder, started, watched and ended. It reaches
brokers as any client does.

May import: kstore.broker_process, kstore.cli, kstore.clients, kstore.config, kstore.errors,
    kstore.net, kstore.private_files.
"""
