"""Operations in progress, which a task can await or a thread can wait for.

An event loop watches one descriptor. Network threads make it readable when results may be
available.
"""

from __future__ import annotations

import asyncio
import itertools
import warnings
import weakref
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Generic, TypeVar

from . import _weir

if TYPE_CHECKING:
    # Any object with a buffer: bytes, bytearray, memoryview, array, numpy array.
    from ._weir import Octets

T = TypeVar("T")

#: Polls for a result. If there is none, the notifier reports the token when there may be one.
Poll = Callable[[_weir.Notifier, int], tuple[T] | None]


def flat(data: Octets) -> bytes | memoryview:
    """The bytes of a buffer of any item type and dimensions."""
    if isinstance(data, str):
        raise TypeError("only bytes can be published: pass text.encode()")
    return data if isinstance(data, bytes) else memoryview(data).cast("B")


class _LoopNotifier:
    """The notifier of one event loop, and the futures that wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.notifier = _weir.Notifier()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.tokens = itertools.count()
        loop.add_reader(self.notifier.fileno(), self._on_ready)

    def _on_ready(self) -> None:
        for token in self.notifier.take():
            future = self.waiting.get(token)
            if future is not None and not future.done():
                future.set_result(None)


_notifiers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopNotifier]
_notifiers = weakref.WeakKeyDictionary()


async def poll(look: Poll[T]) -> T:
    """Polls until there is a result."""
    loop = asyncio.get_running_loop()
    waiters = _notifiers.get(loop)
    if waiters is None:
        waiters = _notifiers[loop] = _LoopNotifier(loop)
    token = next(waiters.tokens)
    try:
        while True:
            future = waiters.waiting[token] = loop.create_future()
            found = look(waiters.notifier, token)
            if found is not None:
                return found[0]
            await future
    finally:
        waiters.waiting.pop(token, None)


def begun(what: str, begin: Callable[[], _weir.Task[T]]) -> Pending[T]:
    """An operation that starts when it is awaited or waited for, and continues if that is
    cancelled."""
    return Pending(what, lambda timeout: begin().wait(timeout), lambda: poll(begin().poll))


class Pending(Generic[T]):
    """An operation in progress: `await` it in a task, or `wait()` for it in a thread, once."""

    def __init__(
        self,
        what: str,
        wait: Callable[[float | None], T],
        task: Callable[[], Awaitable[T]] | None = None,
    ) -> None:
        self._what = what
        self._wait: Callable[[float | None], T] | None = wait
        self._task = task

    def wait(self, timeout: float | None = None) -> T:
        """Waits with the GIL released; Ctrl-C ends the wait. `timeout` is in seconds."""
        wait = self._take()
        return wait(timeout)

    def __await__(self) -> Generator[object, None, T]:
        wait = self._take()
        task = asyncio.to_thread(wait, None) if self._task is None else self._task()
        return task.__await__()

    def _take(self) -> Callable[[float | None], T]:
        if self._wait is None:
            raise RuntimeError(f"{self._what} was already awaited or waited for")
        wait, self._wait = self._wait, None
        return wait

    def __del__(self) -> None:
        if getattr(self, "_wait", None) is not None:
            message = f"{self._what} was neither awaited nor waited for: its result is unknown"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
