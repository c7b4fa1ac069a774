"""The commands of ``kstore``. serve.py starts a broker with as few imports as possible; app.py has
all other commands.

Only kstore.__main__ imports this package.

May import: kstore.broker.app, kstore.broker.runtime, kstore.broker_process,
    kstore.clients, kstore.config, kstore.errors, kstore.private_files, kstore.types,
    kstore.version.
"""
