"""Producers, which publish content."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Unpack

from . import _weir
from ._errors import BusyError, ClosedError, WeirError
from ._options import ProducerOptions, described
from ._pending import Pending, begun, flat, poll

if TYPE_CHECKING:
    from ._weir import Octets

class LiveWriter:
    """An object that grows while it is read. Readers get appended bytes at once.

    As a context manager, it ends the object on success. After an exception, and after `close()`,
    the object has no end, which readers notice later (`Superseded`, `TimedOut`). The calling thread
    signs what it appends, in the order of the calls. An `append` that is cancelled after it has
    started is still published.
    """

    def __init__(self, live: _weir.Live) -> None:
        self._live = live
        #: Name of the version.
        self.name = live.name

    @property
    def next_segment(self) -> int:
        """The number of the next segment."""
        return self._live.next_segment()

    def append(self, data: Octets) -> Pending[None]:
        """Publishes new bytes: one segment, or several if they exceed `segment_size`. Refused while
        the pending bytes fill the output buffer: wait for an earlier call."""
        return begun("append()", lambda: self._live.append(flat(data)))

    def finish(self) -> Pending[None]:
        """Publishes the end of the object."""
        return begun("finish()", self._live.finish)

    def close(self) -> None:
        """Abandons the object without an end, unless it has one."""
        self._live.close()

    def __enter__(self) -> LiveWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self._live.is_over():
            self.finish().wait()
        self.close()

    async def __aenter__(self) -> LiveWriter:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self._live.is_over():
            await self.finish()
        self.close()

    def __repr__(self) -> str:
        return f"<weir.LiveWriter of {self.name}>"


class LivePending(Pending[LiveWriter]):
    """A `LiveWriter` that is being started. `with` and `async with` wait for it as well."""

    def __init__(self, outlet: _weir.Outlet, name: str) -> None:
        def wait(timeout: float | None) -> LiveWriter:
            live, begins = outlet.publish_live(name)
            try:
                begins.wait(timeout)
            except BaseException:
                live.close()
                raise
            return LiveWriter(live)

        async def begin() -> LiveWriter:
            live, begins = outlet.publish_live(name)
            try:
                await poll(begins.poll)
            except BaseException:
                live.close()
                raise
            return LiveWriter(live)

        super().__init__("publish_live()", wait, begin)
        self._writer: LiveWriter | None = None

    def __enter__(self) -> LiveWriter:
        self._writer = self.wait()
        return self._writer

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, *rest)

    async def __aenter__(self) -> LiveWriter:
        self._writer = await self
        return self._writer

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._writer is not None:
            await self._writer.__aexit__(kind, *rest)


@described(ProducerOptions, _weir.producer_options())
class Producer:
    """Publishes names below a prefix, and receives Interests for names that are not published.

    Bound by `with`, `async with` or `bind()`, until the end of the block or `close()`. The output
    buffer answers Interests for published names. A child of `fork` cannot use the producer, and
    does not disturb it.

    Args:
        prefix: the prefix of all names.
        router: the router's address; by default the router that `weir put` uses.
        sign: "default", the user's default key, which is created if missing; the name of a key; or
            "digest", which does not show the origin.
    """

    def __init__(
        self,
        prefix: str,
        *,
        router: str | None = None,
        sign: str = "default",
        **options: Unpack[ProducerOptions],
    ) -> None:
        self.prefix = _weir.check_name(prefix)
        self._given = (router, sign, dict(options))
        # Report invalid options now.
        _weir.Binding(self.prefix, *self._given)
        self._outlet: _weir.Outlet | None = None
        self._binding: _weir.Binding | None = None
        self._given_up: _weir.Binding | None = None

    def bind(self) -> Pending[Producer]:
        """Registers the prefix at the router. If this is cancelled before it completes, the
        producer is not bound."""

        def wait(timeout: float | None) -> Producer:
            if self._outlet is None:
                binding = self._begin()
                try:
                    binding.begin()
                    self._take(binding, binding.wait(timeout))
                finally:
                    self._end(binding)
            return self

        async def bind() -> Producer:
            if self._outlet is None:
                binding = self._begin()
                try:
                    await asyncio.to_thread(binding.begin)
                    self._take(binding, await poll(binding.poll))
                finally:
                    self._end(binding)
            return self

        return Pending("bind()", wait, bind)

    def _begin(self) -> _weir.Binding:
        if self._binding is not None:
            raise BusyError(f"another task or thread binds the producer of {self.prefix}")
        self._binding = _weir.Binding(self.prefix, *self._given)
        return self._binding

    def _take(self, binding: _weir.Binding, outlet: _weir.Outlet) -> None:
        self._outlet = outlet
        # Another thread may have called `close()` before the outlet was set.
        if self._given_up is binding:
            self._outlet = None
            outlet.close()
            raise ClosedError(f"the producer of {self.prefix} was closed while it was bound")

    def _end(self, binding: _weir.Binding) -> None:
        self._binding = None
        binding.close()

    def _bound(self) -> _weir.Outlet:
        if self._outlet is None:
            raise WeirError(f"the producer of {self.prefix} is not bound: use `with` or `bind()`")
        return self._outlet

    def publish(self, name: str, data: Octets, *, version: int | None = None) -> Pending[str]:
        """Publishes a new version of an object: copies the bytes, cuts them into segments and signs
        them. Returns the name with the version, by default the time in milliseconds. Versions of
        one object follow the order of the calls, whichever is awaited first.

        If awaited, other threads sign, and the bytes are copied when the operation starts. If it is
        cancelled before a thread has started to sign, nothing is published; afterwards everything
        is.
        """
        outlet = self._bound()
        number = outlet.next_version(name) if version is None else version

        async def publish() -> str:
            octets = flat(data)
            task = outlet.begin_publish(name, octets, number)
            if task is None:
                # Too many publications already wait for these threads.
                return await asyncio.to_thread(outlet.publish, name, octets, number)
            return await poll(task.poll)

        def wait(_: float | None) -> str:
            return outlet.publish(name, flat(data), number)

        return Pending("publish()", wait, publish)

    def publish_live(self, name: str) -> LivePending:
        """Starts an object that grows while it is read, such as a log or a stream. `with`, `async
        with`, `await` or `.wait()` return the `LiveWriter`."""
        return LivePending(self._bound(), name)

    def offer(self, name: str, data: Octets) -> Pending[_weir.Offer]:
        """Publishes a new version of an object, and returns an offer of it for `Consumer.send`."""
        outlet = self._bound()
        return Pending("offer()", lambda _: outlet.offer(name, flat(data)))

    def offer_of(self, name: str) -> Pending[_weir.Offer | None]:
        """An offer of the latest version that this producer has published, or None."""
        outlet = self._bound()
        return Pending("offer_of()", lambda _: outlet.offer_of(name))

    def answer(self, request: _weir.Request, data: Octets) -> Pending[None]:
        """Answers an Interest with one signed Data of the same name, for example with the result of
        an offer. The content must fit into one packet."""
        outlet = self._bound()
        return Pending("answer()", lambda _: outlet.answer(request, flat(data)))

    def publish_packet(self, packet: Octets) -> Pending[None]:
        """Publishes a Data packet unchanged."""
        outlet = self._bound()
        return Pending("publish_packet()", lambda _: outlet.publish_packet(flat(packet)))

    def request(self) -> Pending[_weir.Request]:
        """Waits for an Interest for a name that is not published. Publish it, or `refuse()` it."""
        outlet = self._bound()
        return Pending("request()", outlet.request, lambda: poll(outlet.poll_request))

    async def requests(self) -> AsyncIterator[_weir.Request]:
        """Yields requests until the producer is closed."""
        outlet = self._bound()
        while True:
            try:
                request = await poll(outlet.poll_request)
            except ClosedError:
                return
            yield request

    def stats(self) -> dict[str, int]:
        """The producer's counters, by the names of `ProducerStats` in Rust: `interests` received,
        `metadata` requested, `data` and `octets` sent, and so on. Counters of its disk start with
        `disk_`. Waits briefly for the thread that answers Interests."""
        return self._bound().stats()

    def close(self) -> None:
        """Frees the prefix, and stops serving what was published."""
        binding = self._binding
        if binding is not None:
            # Set this before checking the outlet: `_take` does it in the opposite order.
            self._given_up = binding
            binding.close()
        outlet = self._outlet
        if outlet is not None:
            outlet.close()

    def __enter__(self) -> Producer:
        return self.bind().wait()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Producer:
        return await self.bind()

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"weir.Producer({self.prefix!r})"
