"""The partitions that a Fetch request names; see fetch_topics.pyx."""
