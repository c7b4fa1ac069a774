"""Topics as they are made, grown and deleted, alone and in a cluster; internal topics. It opens
no log by itself; the log manager does.

May import: kstore.broker.coordination, kstore.broker.runtime, kstore.broker.state.groups.streams,
    kstore.broker.state.metadata, kstore.config, kstore.errors, kstore.log,
    kstore.protocol.metadata, kstore.types.
"""
