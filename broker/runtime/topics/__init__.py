"""Creation, expansion, contraction and deletion of topics, on a single broker and in a cluster;
internal topics. The log manager opens logs.

May import: kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state.groups.streams,
    kstore.broker.state.metadata, kstore.config, kstore.errors, kstore.log,
    kstore.protocol.metadata, kstore.types.
"""
