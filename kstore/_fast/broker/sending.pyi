"""Answers on their way into a socket, slices of files among them; see sending.pyx."""

class PinnedFile:
    """A descriptor of its own for a file that is being sent."""

class FileSlice:
    """Bytes of a file that belong between two bytes of an answer buffer."""
