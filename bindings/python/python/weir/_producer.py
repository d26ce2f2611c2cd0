"""Producers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Unpack

from . import _weir
from ._errors import ClosedError, WeirError
from ._options import ProducerOptions, described
from ._pending import Pending, poll

if TYPE_CHECKING:
    # Anything with octets: bytes, bytearray, memoryview, array, numpy array.
    from ._weir import Octets


def flat(data: Octets) -> bytes | memoryview:
    """The octets of what may have items of other types, and several dimensions."""
    return data if isinstance(data, bytes) else memoryview(data).cast("B")


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
        self._outlet: _weir.Outlet | None = None

    def bind(self) -> Pending[Producer]:
        """Has the router send Interests for the prefix."""

        def bind(_: float | None) -> Producer:
            if self._outlet is None:
                self._outlet = _weir.Outlet(self.prefix, *self._given)
            return self

        return Pending("bind()", bind)

    def _bound(self) -> _weir.Outlet:
        if self._outlet is None:
            raise WeirError(f"the producer of {self.prefix} is not bound: use `with` or `bind()`")
        return self._outlet

    def publish(self, name: str, data: Octets, *, version: int | None = None) -> Pending[str]:
        """Publishes a new version of an object: its octets are copied, cut into segments and
        signed. Its name with the version; by default the number is the time in milliseconds."""
        outlet = self._bound()
        return Pending("publish()", lambda _: outlet.publish(name, flat(data), version))

    def publish_packet(self, packet: Octets) -> Pending[None]:
        """Publishes one Data packet as it is."""
        outlet = self._bound()
        return Pending("publish_packet()", lambda _: outlet.publish_packet(flat(packet)))

    def request(self) -> Pending[_weir.Request]:
        """An Interest for what is not published: publish it, or `refuse()` it."""
        outlet = self._bound()
        return Pending("request()", outlet.request, outlet.poll_request)

    async def requests(self) -> AsyncIterator[_weir.Request]:
        """Requests as they come, until the producer is closed."""
        outlet = self._bound()
        while True:
            try:
                request = await poll(outlet.poll_request)
            except ClosedError:
                return
            yield request

    def close(self) -> None:
        """Gives the prefix back, and forgets what was published."""
        if self._outlet is not None:
            self._outlet.close()

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
