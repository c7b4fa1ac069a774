"""Checks whether bytes of a file are in the page cache, without waiting."""

def is_resident(
    fd: int,
    position: int,
    size_bytes: int,
    ask_by: str = "cachestat",
    on_their_way: bool = True,
) -> bool | None:
    """Whether a range is in the page cache; None: the system can't answer with this method
    ("cachestat", "nowait"; "nothing" reports everything as present). ``on_their_way``: some pages
    may be being read.
    """

def bring_in(fd: int, position: int, size_bytes: int) -> int:
    """Read a range into the page cache; returns its number of bytes."""
