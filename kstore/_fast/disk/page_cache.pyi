"""Whether bytes of a file are in the page cache, asked without waiting."""

def is_resident(
    fd: int,
    position: int,
    size_bytes: int,
    ask_by: str = "cachestat",
    on_their_way: bool = True,
) -> bool | None:
    """Whether a stretch is there; None: the system can't say so this way ("cachestat", "nowait";
    by "nothing" all is there). ``on_their_way``: some pages may just be being read."""

def bring_in(fd: int, position: int, size_bytes: int) -> int:
    """Read a stretch into the page cache; returns how many bytes it has."""
