"""Consumers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from . import _weir
from ._errors import OptionError
from ._options import ConsumerOptions, described
from ._pending import Pending, begun, flat, poll

if TYPE_CHECKING:
    from ._weir import Octets

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Info:
    """What is known of an object."""

    #: Name of the version.
    name: str
    #: Its number, by custom milliseconds since 1970.
    version: int | None
    #: Octets of the object.
    size: int | None
    #: Octets in each segment but the last.
    segment_size: int | None
    #: How many segments there are, or None while it grows.
    segments: int | None
    #: The segment that was to be made next, of an object that grows.
    next_segment: int | None
    #: File type and permissions, as `os.stat` has them.
    mode: int | None
    #: Time of the last change, in seconds since 1970.
    mtime: float | None
    #: Whether it is the listing of a directory.
    is_directory: bool


class Fetch:
    """An object, or a range of it, while it is being fetched; at most `input_buffer` ahead.

    `await fetch` or `fetch.wait()` is all of it, as a `Buffer`. `async for` and `for` give it piece
    by piece, in order, each where it lies in the packet that it came in. `read(n)` waits for n
    octets. Closing it, or forgetting it, ends the fetch.
    """

    def __init__(self, stream: _weir.Stream) -> None:
        self._stream = stream

    def info(self) -> Pending[Info]:
        """What is known of the object."""
        stream = self._stream

        def look(notifier: _weir.Notifier, token: int) -> tuple[Info] | None:
            found = stream.poll_info(notifier, token)
            return None if found is None else (Info(**found[0]),)

        return Pending("info()", lambda timeout: Info(**stream.info(timeout)), lambda: poll(look))

    def wait(self, timeout: float | None = None) -> _weir.Buffer:
        """Waits for all that is left. `timeout` is in seconds."""
        return self._stream.whole(timeout)

    def __await__(self) -> Any:
        return poll(self._stream.poll_whole).__await__()

    def chunk(self) -> Pending[_weir.Buffer | None]:
        """The next piece, or None at the end."""
        stream = self._stream
        return Pending("chunk()", stream.chunk, lambda: poll(stream.poll_chunk))

    def read(self, count: int, timeout: float | None = None) -> bytes:
        """Waits for so many octets; there are fewer at the end alone."""
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

    @property
    def is_verified(self) -> bool:
        """Whether all that was read so far was verified: it is, unless options say otherwise."""
        return self._stream.quality()[0]

    @property
    def missed(self) -> int:
        """Segments that were passed over, as an unreliable consumer does."""
        return self._stream.quality()[1]

    def close(self) -> None:
        """Ends the fetch, and the wait of whoever waits for it."""
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
    """Gets what is below a prefix, and verifies it as `weir get` does.

    All consumers of a process share one connection to a router, and its threads. A consumer may be
    pickled, and works on in a child of `fork`: the child makes a connection of its own.

    Args:
        prefix: where all names must be below.
        router: its address, such as "unix:///run/nfd/nfd.sock" or "tcp://host"; by default the one
            that `weir get` finds.
        anchors: files of certificates; with these nobody else is believed.
        allow_unsigned: whether a digest will do for a signature.
    """

    def __init__(
        self,
        prefix: str = "/",
        *,
        router: str | None = None,
        anchors: Iterable[Path] = (),
        allow_unsigned: bool = False,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.prefix = _weir.check_name(prefix)
        self._given = (self.prefix, router, [os.fspath(path) for path in anchors], allow_unsigned)
        self._options = dict(options)
        # What is wrong with an option is said now.
        self.source(self.prefix)

    def source(self, name: str) -> _weir.Source:
        """What a name denotes: for several ranges that belong to one version."""
        return _weir.Source(name, *self._given, self._options)

    def fetch(self, name: str, start: int = 0, end: int | None = None) -> Fetch:
        """Begins to fetch an object: its latest version, or the one that the name ends with."""
        if start < 0 or (end is not None and end < 0):
            raise OptionError(f"octets {start} to {end}: they are counted from the start, from 0")
        return Fetch(self.source(name).stream(start, end))

    def fetch_newest(self, name: str) -> Fetch:
        """Begins to follow an object that grows, from its newest piece on until it ends; `fetch`
        has it from the first on. Pieces are what its producer appended, as far as one has room in a
        segment. What becomes of a reader that is too slow, the option `behind` says; `missed`
        counts what it passed over. `Superseded`: its producer has begun anew."""
        return Fetch(self.source(name).newest())

    def express(
        self,
        name: str,
        parameters: Octets | None = None,
        *,
        can_be_prefix: bool = False,
        must_be_fresh: bool = False,
    ) -> Pending[_weir.Answer]:
        """Sends one Interest, once, perhaps with octets as its parameters. What comes back, within
        the option `lifetime`, is **not verified**."""
        source = self.source(name)
        octets = None if parameters is None else flat(parameters)
        return begun(
            "express()", lambda: source.express(octets, can_be_prefix, must_be_fresh)
        )

    def send(self, name: str, offer: _weir.Offer) -> Pending[_weir.Answer]:
        """Sends an offer in one Interest, once: whoever answers for the name may get what is
        offered. What comes back, within the option `lifetime`, is **not verified**."""
        source = self.source(name)
        return begun("send()", lambda: source.send(offer))

    def info(self, name: str) -> Pending[Info]:
        """What is known of an object: version, size, time of change. Verified."""
        return Fetch(self.source(name).stream(0, 0)).info()

    def __reduce__(self) -> tuple[Callable[..., Consumer], tuple[object, ...]]:
        return _consumer, (*self._given, self._options)

    def __repr__(self) -> str:
        return f"weir.Consumer({self.prefix!r})"


def _consumer(
    prefix: str,
    router: str | None,
    anchors: list[str],
    allow_unsigned: bool,
    options: ConsumerOptions,
) -> Consumer:
    given: dict[str, Any] = {"router": router, "anchors": anchors, "allow_unsigned": allow_unsigned}
    return Consumer(prefix, **given, **options)
