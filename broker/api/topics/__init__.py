"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords. It checks the form;
broker.runtime.topics acts.

May import: kstore._fast.broker, kstore.acls, kstore.broker.api, kstore.broker.api.logs,
    kstore.broker.api.metadata, kstore.broker.api.security, kstore.broker.runtime.broker,
    kstore.broker.runtime.groups, kstore.broker.runtime.quotas, kstore.broker.runtime.topics,
    kstore.broker.state.metadata, kstore.config, kstore.errors, kstore.protocol,
    kstore.protocol.logs, kstore.protocol.metadata.
"""
