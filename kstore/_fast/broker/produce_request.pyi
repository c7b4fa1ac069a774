"""A Produce request as its frame has it; for the produce path alone."""

class ProduceRequest:
    """Its topics and partitions in arrays. Nothing of it is for Python."""
