"""The functions `get` and `put`, which work like `weir get` and `weir put`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Unpack, overload

from . import _weir
from ._consumer import Consumer, Path, Trusted, trusted_of
from ._errors import OptionError, WeirError
from ._listing import child, entries
from ._options import ConsumerOptions, PublishOptions, described
from ._pending import flat

if TYPE_CHECKING:
    from ._weir import Octets

#: Router, and trusted signers.
Where = tuple[str | None, Trusted]
#: Number of files of a directory that are fetched in parallel.
SIDE_BY_SIDE = 8
#: Suffixes of temporary files of downloads.
KEPT = (".weir-part", ".weir-state", ".weir-new")


@overload
def get(
    name: str,
    to: None = None,
    *,
    range: tuple[int, int | None] | None = None,
    timeout: float | None = None,
    router: str | None = None,
    anchors: Iterable[Path] = (),
    allow_unsigned: bool = False,
    accept_unverified: bool = False,
    hicn_key: Path | None = None,
    **options: Unpack[ConsumerOptions],
) -> _weir.Buffer: ...


@overload
def get(
    name: str,
    to: Path,
    *,
    router: str | None = None,
    anchors: Iterable[Path] = (),
    allow_unsigned: bool = False,
    accept_unverified: bool = False,
    hicn_key: Path | None = None,
    **options: Unpack[ConsumerOptions],
) -> str: ...


@described(ConsumerOptions, _weir.consumer_options())
def get(
    name: str,
    to: Path | None = None,
    *,
    range: tuple[int, int | None] | None = None,
    timeout: float | None = None,
    router: str | None = None,
    anchors: Iterable[Path] = (),
    allow_unsigned: bool = False,
    accept_unverified: bool = False,
    hicn_key: Path | None = None,
    **options: Unpack[ConsumerOptions],
) -> _weir.Buffer | str:
    """Fetches an object by name, and verifies it like `weir get`. Waits with the GIL released.

    Args:
        name: the name, such as /data/file, with or without a version.
        to: path of the file or, for a directory, the folder to write. It appears when it is
            complete; an interrupted download continues. Returns the name of the version. An
            existing file is replaced and keeps its permissions; a symbolic link is an error.
            Without `to`, the bytes are returned as a `Buffer`.
        range: (start, end) in bytes; an end of None is the end of the object.
        timeout: maximum time in seconds.
        router, anchors, allow_unsigned, accept_unverified, hicn_key: as for `Consumer`.
    """
    if to is None:
        if range is not None and len(range) != 2:
            raise OptionError(f"range: {range!r} is invalid; give (start, end), end may be None")
        start, end = range or (0, None)
        consumer = Consumer(
            router=router,
            anchors=anchors,
            allow_unsigned=allow_unsigned,
            accept_unverified=accept_unverified,
            hicn_key=hicn_key,
            **options,
        )
        with consumer.fetch(name, start, end) as fetch:
            return fetch.wait(timeout)
    if range is not None or timeout is not None:
        raise TypeError("range and timeout cannot be combined with to=")
    where = (router, trusted_of(anchors, allow_unsigned, accept_unverified, hicn_key))
    return _get_to(name, os.fspath(to), where, dict(options))


def _get_to(name: str, path: str, where: Where, options: dict[str, Any]) -> str:
    try:
        return _weir.download(name, path, *where, options)[0]
    except IsADirectoryError as found:
        versioned = str(found)
    source = _weir.Source(versioned, "/", *where, options)
    listed = entries(bytes(source.stream().whole()))
    if os.path.islink(path):
        raise WeirError(f"{path} is a symbolic link, and downloads do not follow it; give another "
                        "path with to=, or that of a folder with a slash at its end")
    os.makedirs(path, exist_ok=True)

    def get_entry(entry: tuple[bytes, bool]) -> None:
        part = os.fsdecode(entry[0])
        if part.startswith(".") and part.endswith(KEPT):
            raise WeirError(f"{name} lists {part!r}, a name that downloads use for temporary files")
        _get_to(child(name, entry[0]), os.path.join(path, part), where, options)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for _ in pool.map(get_entry, [entry for entry in listed if not entry[1]]):
            pass
    for entry in listed:
        if entry[1]:
            get_entry(entry)
    return versioned


class Put:
    """Content that `put` serves, until `close()` or the end of `with`. A child of `fork` does not
    serve it and cannot close it."""

    def __init__(self, shelf: _weir.Shelf, name: str) -> None:
        self._shelf = shelf
        #: Name of the version.
        self.name = name

    @property
    def lost(self) -> list[str]:
        """Messages about files that are no longer served because they changed or disappeared."""
        return self._shelf.lost

    def close(self) -> None:
        """Stops serving."""
        self._shelf.close()

    def __enter__(self) -> Put:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<weir.Put of {self.name}>"


@described(PublishOptions, _weir.producer_options())
def put(
    name: str,
    content: Octets | Path,
    *,
    version: int | None = None,
    router: str | None = None,
    sign: str = "default",
    **options: Unpack[PublishOptions],
) -> Put:
    """Serves a file, a directory or bytes under a name, like `weir put`, until it is closed.

    Every segment is signed once, before this returns. A file is read when it is requested, and must
    not change. Bytes are copied.

    Args:
        name: the name, such as /data/file.
        content: a path (`str` or `pathlib.Path`), or an object with a buffer.
        version: version number; by default the time in milliseconds since 1970.
        router: the router's address; by default the router that `weir put` uses.
        sign: "default", the name of a key, or "digest"; as for `Producer`.
    """
    shelf = _weir.Shelf(name, router, sign, version, dict(options))
    name = _weir.check_name(name)
    if not isinstance(content, (str, os.PathLike)):
        versioned = shelf.add_octets(flat(content), name)
    elif os.path.isdir(content):
        versioned = _add_folder(shelf, os.fspath(content), name)
    else:
        versioned = shelf.add_file(os.fspath(content), name)
    shelf.start()
    return Put(shelf, versioned)


def _add_folder(shelf: _weir.Shelf, path: str, name: str) -> str:
    """Adds all files of a folder, and its listings. Does not follow links."""
    listed = []
    with os.scandir(path) as found:
        for entry in sorted(found, key=lambda entry: entry.name):
            part = os.fsencode(entry.name)
            below = child(name, part)
            if entry.is_dir(follow_symlinks=False):
                _add_folder(shelf, entry.path, below)
            elif entry.is_file(follow_symlinks=False):
                shelf.add_file(entry.path, below)
            else:
                continue
            listed.append((part, entry.is_dir(follow_symlinks=False)))
    return shelf.add_listing(listed, name)


