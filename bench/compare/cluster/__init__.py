"""Three brokers beside three of Kafka's (cases.py)."""

from bench.compare.cluster.cases import Cluster, cluster_makers, rows

__all__ = ["Cluster", "cluster_makers", "rows"]
