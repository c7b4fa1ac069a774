"""Jobs that run as separate programs. `load` (load a file, and compare) and `run` (the command
``make run``) never need Spark, `replicate` and the room `tables` always; `archive`
and `restore`, and `verify` and `stats` in the rooms below, need it for much. ``kstore pipeline`` is
their command line; brokers import none of them.

May import: kstore.broker_process, kstore.clients.admin, kstore.clients.core, kstore.clients.io,
    kstore.clients.replicator, kstore.config.client, kstore.env, kstore.errors, kstore.pipeline,
    kstore.protocol.logs, kstore.record, kstore.types.
"""
