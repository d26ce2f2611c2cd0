"""The options of consumers and producers, as keyword arguments.

A test compares them with the tables in `weir-socket`. Sizes are bytes, or text such as "16MiB".
Times are seconds, a `timedelta`, or text such as "500ms".
"""

from __future__ import annotations

from datetime import timedelta
from os import PathLike
from typing import Callable, Literal, TypedDict, TypeVar

from . import _weir

Size = int | str
Time = float | timedelta | str


class ConsumerOptions(TypedDict, total=False):
    """Options of `get`, `Consumer` and the file system `ndn://`."""

    reliable: bool
    verify: bool
    manifest: bool
    on_bad: Literal["ask-again", "deliver", "abort"]
    input_buffer: Size
    lifetime: Time
    retries: int
    controller: str
    window: int
    window_max: int
    stored: bool
    ahead: int
    behind: Literal["in-order", "skip"]
    fresh: bool
    mapping: str


class PublishOptions(TypedDict, total=False):
    """Options of `put`."""

    segment_size: Size
    freshness: Time
    metadata_freshness: Time
    signs: Literal["segments", "manifest"]
    threads: int


class ProducerOptions(PublishOptions, total=False):
    """Options of `Producer`."""

    output_buffer: Size
    output_policy: str
    reliable: bool
    disk: str | PathLike[str]
    disk_size: Size
    disk_wait: Time
    request_wait: Time
    requests_max: int
    objects_max: int
    signature_format: Literal["ndn", "hicn"]
    mapping: str


T = TypeVar("T", bound=Callable[..., object] | type)


def described(options: type, table: list[_weir.Row]) -> Callable[[T], T]:
    """Adds the descriptions of the options in `table` to a docstring."""

    def add(target: T) -> T:
        lines = []
        for name, kind, default, bounds, text in table:
            if name in options.__annotations__:
                between = f", {bounds[0]} to {bounds[1]}" if bounds else ""
                lines.append(f"    {name}: {text} ({kind}{between}; {default})")
        target.__doc__ = f"{target.__doc__}\n\nOptions:\n" + "\n".join(lines) + "\n"
        return target

    return add
