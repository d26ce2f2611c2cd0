"""Named Data Networking: fetch and publish named, signed data.

    import weir

    with weir.put("/example/greeting", b"hello"):
        print(bytes(weir.get("/example/greeting")))

pandas, xarray, Dask and others read files by name: `pandas.read_parquet("ndn:///example/x")`.
"""

from ._consumer import Consumer, Fetch, Info
from ._errors import (
    BusyError,
    ClosedError,
    ForkedError,
    InvalidName,
    KeyChainError,
    NoRouter,
    NotFound,
    OptionError,
    PrefixInUse,
    RefusedError,
    Superseded,
    TimedOut,
    TooLong,
    VerificationError,
    WeirError,
)
from ._options import ConsumerOptions, ProducerOptions, PublishOptions
from ._pending import Pending
from ._producer import LiveWriter, Producer
from ._transfer import Put, get, put
from ._weir import Answer, Buffer, Offer, Request

__all__ = [
    "Answer",
    "Buffer",
    "BusyError",
    "ClosedError",
    "Consumer",
    "ConsumerOptions",
    "Fetch",
    "ForkedError",
    "Info",
    "InvalidName",
    "KeyChainError",
    "LiveWriter",
    "NoRouter",
    "NotFound",
    "Offer",
    "OptionError",
    "Pending",
    "PrefixInUse",
    "Producer",
    "ProducerOptions",
    "PublishOptions",
    "Put",
    "RefusedError",
    "Request",
    "Superseded",
    "TimedOut",
    "TooLong",
    "VerificationError",
    "WeirError",
    "get",
    "put",
]
