"""kstore with Spark and without it. Importing this package has no effects. Importing the data
source (kstore.pipeline.source) before a session is created makes Spark use this Python.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.core, kstore.clients.io,
    kstore.clients.replicator, kstore.config, kstore.errors, kstore.pipeline.segments,
    kstore.pipeline.sink, kstore.protocol, kstore.record, kstore.types.
"""

if __name__ != "kstore.pipeline":
    raise ImportError("this package is imported as kstore.pipeline, not as " + repr(__name__))
