"""A borrowed view of an object's bytes. Only for other Cython modules."""

class MemoryView:
    """The bytes of an object with the buffer protocol, for as long as the view lives."""
