"""Messages about the cluster: ApiVersions, Metadata, DescribeCluster, topics, configs, features.
It knows no image.

May import: kstore.protocol.
"""
