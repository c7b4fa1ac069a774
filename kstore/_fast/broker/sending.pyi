"""Responses while they are sent, including slices of files; see sending.pyx."""

class PinnedFile:
    """A duplicate descriptor of a file that is being sent."""

class FileSlice:
    """Bytes of a file that belong between two bytes of a response buffer."""
