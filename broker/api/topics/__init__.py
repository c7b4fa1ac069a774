"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords. It checks the form;
broker.runtime.topics acts.

May import: kstore._fast.broker, kstore.acls, kstore.broker.api, kstore.broker.runtime,
    kstore.broker.state.metadata, kstore.config, kstore.errors, kstore.log, kstore.protocol.
"""
