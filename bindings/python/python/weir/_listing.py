"""Listings of directories: names, each ended by a NUL, those of directories with a slash before."""

from __future__ import annotations

import os
import urllib.parse

from . import _weir
from ._errors import WeirError

#: Octets of a component that stand for themselves in a name as text.
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


def child(name: str, part: bytes) -> str:
    """The name of an entry of a directory."""
    text = "".join(chr(octet) if octet in _PLAIN else f"%{octet:02X}" for octet in part)
    if not text.strip("."):
        # A component of dots alone is written with three more.
        text += "..."
    return _weir.check_name(f"{name.rstrip('/')}/{text}")


def file_name(component: str) -> str:
    """The name of the file that a component of a name, as text, is the name of."""
    if "=" in component:
        # It has another type, such as a version.
        return component
    part = urllib.parse.unquote_to_bytes(component)
    if not component.strip("."):
        part = part[3:]
    if part in (b"", b".", b"..") or b"/" in part or b"\0" in part:
        raise WeirError(f"{component} is no file name")
    return os.fsdecode(part)


def entries(listing: bytes) -> list[tuple[bytes, bool]]:
    """Names, and whether each is a directory. One that would lead elsewhere is refused."""
    found = []
    for entry in filter(None, listing.split(b"\0")):
        part = entry.removesuffix(b"/")
        if part in (b"", b".", b"..") or b"/" in part or len(part) > 255:
            raise WeirError(f"the directory lists {part!r}, which is no file name")
        found.append((part, part != entry))
    return found
