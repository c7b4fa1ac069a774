"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords. This room checks requests, and
broker.runtime.topics executes them.

May import: kstore._fast.broker, kstore.acls, kstore.broker.api, kstore.broker.runtime,
    kstore.broker.state.metadata, kstore.config, kstore.errors, kstore.log, kstore.protocol.
"""
