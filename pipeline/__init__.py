"""kstore in Spark, and beside it. Importing this changes nothing; importing the data source
(kstore.pipeline.source) before a session is made has Spark use this Python.

May import: kstore._fast.clients, kstore._fast.record, kstore.clients.core, kstore.clients.io,
    kstore.clients.replicator, kstore.config, kstore.errors, kstore.pipeline.segments,
    kstore.pipeline.sink, kstore.protocol, kstore.record, kstore.types.
"""

if __name__ != "kstore.pipeline":
    raise ImportError("this package is imported as kstore.pipeline, not as " + repr(__name__))
