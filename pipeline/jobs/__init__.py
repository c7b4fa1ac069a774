"""Jobs that run as programs of their own beside a broker. Two need no Spark: `load` (a file in, and
compared) and `run` (what ``make run`` does); `archive`, `restore`, `replicate`, and `verify` and
`stats` in the rooms below do. ``kstore pipeline`` is their command line; none is imported by a
broker.

May import: kstore.broker_process, kstore.clients.admin, kstore.clients.core, kstore.clients.io,
    kstore.clients.replicator, kstore.config.client, kstore.errors, kstore.pipeline,
    kstore.protocol.logs, kstore.record, kstore.types.
"""
