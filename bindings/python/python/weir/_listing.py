"""Listings of directories: names that end with NUL. Names of directories end with a slash."""

from __future__ import annotations

import os
import urllib.parse

from . import _weir
from ._errors import WeirError

#: Bytes of a component that are not percent-encoded in the text form of a name.
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


def child(name: str, part: bytes) -> str:
    """The NDN name of a directory entry."""
    text = "".join(chr(octet) if octet in _PLAIN else f"%{octet:02X}" for octet in part)
    if not text.strip("."):
        # A component that consists of dots is written with three additional dots.
        text += "..."
    return _weir.check_name(f"{name.rstrip('/')}/{text}")


def file_name(component: str) -> str:
    """The file name for a component of a name in text form."""
    if "=" in component:
        # A component of another type, such as a version.
        return component
    part = urllib.parse.unquote_to_bytes(component)
    if not component.strip("."):
        part = part[3:]
    if part in (b"", b".", b"..") or b"/" in part or b"\0" in part:
        raise WeirError(f"{component} is not a file name")
    return os.fsdecode(part)


def entries(listing: bytes) -> list[tuple[bytes, bool]]:
    """Names, and whether each is a directory. Rejects names that lead out of the directory."""
    found = []
    for entry in filter(None, listing.split(b"\0")):
        part = entry.removesuffix(b"/")
        if part in (b"", b".", b"..") or b"/" in part or len(part) > 255:
            raise WeirError(f"the directory lists {part!r}, which is not a file name")
        found.append((part, part != entry))
    return found
