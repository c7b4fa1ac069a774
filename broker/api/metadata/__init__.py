"""Requests about the cluster: ApiVersions, Metadata, DescribeCluster, configs and features. It
changes no topic.

May import: kstore._fast.broker, kstore.acls, kstore.broker.api, kstore.broker.api.requests,
    kstore.broker.api.security, kstore.broker.runtime.broker, kstore.broker.runtime.log_levels,
    kstore.broker.runtime.metadata, kstore.broker.runtime.slices, kstore.broker.state.metadata,
    kstore.config, kstore.errors, kstore.protocol, kstore.protocol.metadata.
"""
