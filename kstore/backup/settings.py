"""A broker's settings file, with the paths of the folder to which it is restored."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["restored_settings"]

PLACES = {"log.dirs", "log.dir", "kstore.coordination.dir", "zookeeper.connect"}


def restored_settings(content: bytes, places: Mapping[str, str]) -> bytes:
    """The file with these values of the settings in PLACES, instead of its own. Other lines do not
    change.
    """
    lines = [line for line in _logical_lines(content.decode()) if _key(line) not in PLACES]
    lines += [f"{name}={_escaped(value)}\n" for name, value in places.items()]
    return "".join(lines).encode()


def _logical_lines(text: str) -> list[str]:
    """Lines, joined with their continuations after a backslash."""
    found: list[str] = []
    goes_on = False
    for line in text.splitlines(keepends=True):
        if goes_on:
            found[-1] += line
        else:
            found.append(line)
        ending = line.rstrip("\r\n")
        comment = not goes_on and ending.lstrip()[:1] in {"#", "!"}
        slashes = len(ending) - len(ending.rstrip("\\"))
        goes_on = not comment and slashes % 2 == 1
    if found and not found[-1].endswith("\n"):
        found[-1] += "\n"
    return found


def _key(line: str) -> str:
    text = line.strip()
    if text[:1] in {"#", "!"}:
        return ""
    for at, character in enumerate(text):
        if character in "=: \t":
            return text[:at]
    return text


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
