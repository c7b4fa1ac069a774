"""A parsed Produce request; only for the produce path."""

class ProduceRequest:
    """Its topics and partitions in arrays. It has no Python interface."""
