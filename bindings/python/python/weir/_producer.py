"""Producers."""

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
    """An object that grows while it is read. Its readers get what is appended at once.

    As a context it ends the object when all went well; after an exception it leaves it without an
    end, and so does `close()`: readers find out later (`Superseded`, `TimedOut`). What is appended
    is signed by the thread that does so, in the order of the calls; an `append` that is given up
    once it has begun is published all the same.
    """

    def __init__(self, live: _weir.Live) -> None:
        self._live = live
        #: Name of the version.
        self.name = live.name

    @property
    def next_segment(self) -> int:
        """The number of the segment that is made next."""
        return self._live.next_segment()

    def append(self, data: Octets) -> Pending[None]:
        """Publishes what is new: one segment, or several if it is longer than `segment_size`.
        Refused while as much as the output buffer has waits already: wait for an earlier one."""
        return begun("append()", lambda: self._live.append(flat(data)))

    def finish(self) -> Pending[None]:
        """Says that nothing follows."""
        return begun("finish()", self._live.finish)

    def close(self) -> None:
        """Leaves it without an end, unless it has one."""
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
    """A `LiveWriter` that is about to begin: `with` and `async with` wait for it, too."""

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
    """Publishes below a prefix, and is told of what is asked for and not published.

    Bound by `with`, `async with` or `bind()`, until the end of that or `close()`. What is published
    is answered from the output buffer. A child of `fork` cannot use it, and does not disturb it.

    Args:
        prefix: where all names must be below.
        router: its address; by default the one that `weir put` finds.
        sign: "default", the user's default key, which is made if there is none; the name of a key;
            or "digest", which shows no origin.
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
        # What is wrong with an option is said now.
        _weir.Binding(self.prefix, *self._given)
        self._outlet: _weir.Outlet | None = None
        self._binding: _weir.Binding | None = None
        self._given_up: _weir.Binding | None = None

    def bind(self) -> Pending[Producer]:
        """Has the router send Interests for the prefix. Given up before it does, the producer is
        not bound."""

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
        # Another thread may have closed it before it could find the outlet.
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
        """Publishes a new version of an object: its octets are copied, cut into segments and
        signed. Its name with the version; by default the number is the time in milliseconds, and
        versions of one object are in the order of the calls, whichever of them is awaited first.

        Awaited, it is signed by threads of its own, and octets are copied when it begins. Cancelled
        before a thread has begun to sign, it is given up; from then on it is published as a whole.
        """
        outlet = self._bound()
        number = outlet.next_version(name) if version is None else version

        async def publish() -> str:
            octets = flat(data)
            task = outlet.begin_publish(name, octets, number)
            if task is None:
                # As many wait for those threads as may.
                return await asyncio.to_thread(outlet.publish, name, octets, number)
            return await poll(task.poll)

        def wait(_: float | None) -> str:
            return outlet.publish(name, flat(data), number)

        return Pending("publish()", wait, publish)

    def publish_live(self, name: str) -> LivePending:
        """Begins an object that grows while it is read, such as a log or a stream: `with`, `async
        with`, `await` or `.wait()` give the `LiveWriter` to append to."""
        return LivePending(self._bound(), name)

    def offer(self, name: str, data: Octets) -> Pending[_weir.Offer]:
        """Publishes a new version of an object, and gives what leads others to it, to be sent by
        `Consumer.send`."""
        outlet = self._bound()
        return Pending("offer()", lambda _: outlet.offer(name, flat(data)))

    def offer_of(self, name: str) -> Pending[_weir.Offer | None]:
        """What leads others to the latest version that was published here, or None."""
        outlet = self._bound()
        return Pending("offer_of()", lambda _: outlet.offer_of(name))

    def answer(self, request: _weir.Request, data: Octets) -> Pending[None]:
        """Answers an Interest with one signed Data of its own name, which nobody finds by another:
        what an offer came to, for example. It has room for one packet."""
        outlet = self._bound()
        return Pending("answer()", lambda _: outlet.answer(request, flat(data)))

    def publish_packet(self, packet: Octets) -> Pending[None]:
        """Publishes one Data packet as it is."""
        outlet = self._bound()
        return Pending("publish_packet()", lambda _: outlet.publish_packet(flat(packet)))

    def request(self) -> Pending[_weir.Request]:
        """An Interest for what is not published: publish it, or `refuse()` it."""
        outlet = self._bound()
        return Pending("request()", outlet.request, lambda: poll(outlet.poll_request))

    async def requests(self) -> AsyncIterator[_weir.Request]:
        """Requests as they come, until the producer is closed."""
        outlet = self._bound()
        while True:
            try:
                request = await poll(outlet.poll_request)
            except ClosedError:
                return
            yield request

    def stats(self) -> dict[str, int]:
        """What it did so far: `interests` that came, `metadata` asked for, `data` and `octets`
        sent, and so on, by the names of `ProducerStats` in Rust; those of its disk begin with
        `disk_`. Asks the thread that answers, which takes a moment."""
        return self._bound().stats()

    def close(self) -> None:
        """Gives the prefix back, and forgets what was published."""
        binding = self._binding
        if binding is not None:
            # Before the outlet is looked for: whoever binds looks the other way round.
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
