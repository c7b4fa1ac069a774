"""The batches of one append before they are written; for the append core alone."""

class AppendPlan:
    """What is wrong with them, which offsets they get. Nothing of it is for Python."""
