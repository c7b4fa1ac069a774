"""Produce requests that came together and have one write; see produce_runs.pyx."""

class ProduceRuns:
    """The small Produce requests of one connection that stand behind each other."""

    runs: int
    """How many writes had the batches of several requests."""
