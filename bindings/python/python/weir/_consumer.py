"""Consumers, which fetch content."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from . import _weir
from ._errors import OptionError
from ._options import ConsumerOptions, described
from ._pending import Pending, begun, flat, poll

if TYPE_CHECKING:
    from ._weir import Octets

Path = str | os.PathLike[str]
#: The trusted signers, as `_weir` expects them: `anchors`, `allow_unsigned`, `accept_unverified`
#: and `hicn_key`.
Trusted = tuple[list[str], bool, bool, str | None]


def trusted_of(
    anchors: Iterable[Path],
    allow_unsigned: bool,
    accept_unverified: bool,
    hicn_key: Path | None,
) -> Trusted:
    """Returns the arguments of `Consumer` about trusted signers, with paths as strings."""
    files = [os.fspath(path) for path in anchors]
    key = None if hicn_key is None else os.fspath(hicn_key)
    return files, allow_unsigned, accept_unverified, key


class Quality(NamedTuple):
    """What `Stream.quality()` of `_weir` returns."""

    is_verified: bool
    missed: int
    is_end_signed: bool


@dataclass(frozen=True)
class Info:
    """Metadata of an object."""

    #: Name of the version.
    name: str
    #: Version number, usually milliseconds since 1970.
    version: int | None
    #: Size of the object in bytes.
    size: int | None
    #: Bytes in each segment except the last.
    segment_size: int | None
    #: Number of segments, or None while the object grows.
    segments: int | None
    #: The next segment of a growing object.
    next_segment: int | None
    #: File type and permissions, as in `os.stat`.
    mode: int | None
    #: Time of the last modification, in seconds since 1970.
    mtime: float | None
    #: Whether the object is the listing of a directory.
    is_directory: bool


class Fetch:
    """A fetch of an object, or of a range of it, which reads at most `input_buffer` ahead.

    `await fetch` or `fetch.wait()` returns all bytes as a `Buffer`. `async for` and `for` yield
    chunks in order, without copying them out of their packets. `read(n)` waits for n bytes. The
    fetch ends when it is closed or garbage collected.
    """

    def __init__(self, stream: _weir.Stream) -> None:
        self._stream = stream

    def info(self) -> Pending[Info]:
        """Returns the metadata of the object."""
        stream = self._stream

        def look(notifier: _weir.Notifier, token: int) -> tuple[Info] | None:
            found = stream.poll_info(notifier, token)
            return None if found is None else (Info(**found[0]),)

        return Pending("info()", lambda timeout: Info(**stream.info(timeout)), lambda: poll(look))

    def wait(self, timeout: float | None = None) -> _weir.Buffer:
        """Waits for all remaining bytes. `timeout` is in seconds."""
        return self._stream.whole(timeout)

    def __await__(self) -> Any:
        return poll(self._stream.poll_whole).__await__()

    def chunk(self) -> Pending[_weir.Buffer | None]:
        """Returns the next chunk, or None at the end."""
        stream = self._stream
        return Pending("chunk()", stream.chunk, lambda: poll(stream.poll_chunk))

    def read(self, count: int, timeout: float | None = None) -> bytes:
        """Waits for `count` bytes. Returns fewer only at the end."""
        return self._stream.read(count, timeout)

    def __iter__(self) -> Iterator[_weir.Buffer]:
        while (chunk := self._stream.chunk()) is not None:
            yield chunk

    def __aiter__(self) -> AsyncIterator[_weir.Buffer]:
        return self

    async def __anext__(self) -> _weir.Buffer:
        chunk = await poll(self._stream.poll_chunk)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def _quality(self) -> Quality:
        return Quality(*self._stream.quality())

    @property
    def is_verified(self) -> bool:
        """Whether everything read so far was verified. True, unless options disable
        verification."""
        return self._quality().is_verified

    @property
    def missed(self) -> int:
        """Number of segments that an unreliable consumer has skipped."""
        return self._quality().missed

    @property
    def is_end_signed(self) -> bool:
        """Whether a signature covers the end of the object, after all was read. Producers of hICN
        may mark the last packet with a flag that any router can change."""
        return self._quality().is_end_signed

    def close(self) -> None:
        """Ends the fetch, and all waits for it."""
        self._stream.close()

    def __enter__(self) -> Fetch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Fetch:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


@described(ConsumerOptions, _weir.consumer_options())
class Consumer:
    """Fetches names below a prefix, and verifies content like `weir get`.

    All consumers of a process share one connection to a router, and its threads. A consumer can be
    pickled, and works in a child of `fork`, which makes its own connection.

    Args:
        prefix: the prefix of all names.
        router: the router's address, such as "unix:///run/nfd/nfd.sock" or "tcp://host"; by default
            the router that `weir get` uses.
        anchors: certificate files; if given, only their owners are trusted.
        allow_unsigned: whether content that has only a digest is accepted.
        accept_unverified: whether content is also accepted whose signature cannot be verified, such
            as that of producers that do not serve their certificate. Digests and the order of
            segments are checked, and no signer is remembered. Names of a trust anchor or of a known
            signer still need its signature.
        hicn_key: a file with the key of an hICN producer: a public key in PEM, an NDN certificate,
            or the passphrase of an HMAC key. Only packets signed with it are accepted.
    """

    def __init__(
        self,
        prefix: str = "/",
        *,
        router: str | None = None,
        anchors: Iterable[Path] = (),
        allow_unsigned: bool = False,
        accept_unverified: bool = False,
        hicn_key: Path | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.prefix = _weir.check_name(prefix)
        trusted = trusted_of(anchors, allow_unsigned, accept_unverified, hicn_key)
        self._given = (self.prefix, router, trusted)
        self._options = dict(options)
        # Report invalid options now.
        self.source(self.prefix)

    def source(self, name: str) -> _weir.Source:
        """Returns an object by name, for several fetches of the same version."""
        return _weir.Source(name, *self._given, self._options)

    def fetch(self, name: str, start: int = 0, end: int | None = None) -> Fetch:
        """Starts to fetch an object: its latest version, or the version in the name."""
        if start < 0 or (end is not None and end < 0):
            raise OptionError(f"bytes {start} to {end}: positions start from 0")
        return Fetch(self.source(name).stream(start, end))

    def fetch_newest(self, name: str) -> Fetch:
        """Starts to follow a growing object, from its newest chunk until it ends. `fetch` starts at
        the first chunk. A chunk is what the producer appended, or one segment of it. The option
        `behind` decides how a slow reader continues; `missed` counts skipped segments.
        `Superseded`: the producer has started a newer version."""
        return Fetch(self.source(name).newest())

    def express(
        self,
        name: str,
        parameters: Octets | None = None,
        *,
        can_be_prefix: bool = False,
        must_be_fresh: bool = False,
    ) -> Pending[_weir.Answer]:
        """Sends a single Interest, optionally with parameters. The answer arrives within the option
        `lifetime`, and is **not verified**."""
        source = self.source(name)
        octets = None if parameters is None else flat(parameters)
        return begun(
            "express()", lambda: source.express(octets, can_be_prefix, must_be_fresh)
        )

    def send(self, name: str, offer: _weir.Offer) -> Pending[_weir.Answer]:
        """Sends an offer in a single Interest. The producer of the name may fetch the offered
        content. The answer arrives within the option `lifetime`, and is **not verified**."""
        source = self.source(name)
        return begun("send()", lambda: source.send(offer))

    def info(self, name: str) -> Pending[Info]:
        """Returns verified metadata of an object: version, size, time of modification."""
        return Fetch(self.source(name).stream(0, 0)).info()

    def __reduce__(self) -> tuple[Callable[..., Consumer], tuple[object, ...]]:
        return _consumer, (*self._given, self._options)

    def __repr__(self) -> str:
        return f"weir.Consumer({self.prefix!r})"


def _consumer(
    prefix: str,
    router: str | None,
    trusted: Trusted,
    options: ConsumerOptions,
) -> Consumer:
    anchors, allow_unsigned, accept_unverified, hicn_key = trusted
    given: dict[str, Any] = {
        "router": router,
        "anchors": anchors,
        "allow_unsigned": allow_unsigned,
        "accept_unverified": accept_unverified,
        "hicn_key": hicn_key,
    }
    return Consumer(prefix, **given, **options)
