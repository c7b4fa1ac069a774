"""Creates, expands, contracts and deletes topics, on a single broker and in a cluster. Also creates
the internal topics. The log manager opens logs.

May import: kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state.groups.streams,
    kstore.broker.state.metadata, kstore.config, kstore.errors, kstore.log,
    kstore.protocol.metadata, kstore.types.
"""
