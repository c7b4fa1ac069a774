"""Produce requests that arrived together and share one write; see produce_runs.pyx."""

class ProduceRuns:
    """Consecutive small Produce requests of one connection."""

    runs: int
    """The number of writes with the batches of several requests."""
