"""The file system `ndn://` for fsspec, and so for pandas, pyarrow, xarray, Dask and uproot.

    pandas.read_parquet("ndn:///example/data.parquet", columns=["energy"])

Only the bytes that are read are fetched. Sequential reads are fetched ahead, up to `input_buffer`;
other reads fetch their range only. An open file stays at one version. A file system can be pickled,
and works in a child of `fork`.
"""

from __future__ import annotations

import time
from typing import Any

from fsspec.caching import BaseCache, register_cache  # type: ignore[import-untyped]
from fsspec.callbacks import DEFAULT_CALLBACK  # type: ignore[import-untyped]
from fsspec.implementations.local import make_path_posix  # type: ignore[import-untyped]
from fsspec.spec import (  # type: ignore[import-untyped]
    AbstractBufferedFile,
    AbstractFileSystem,
)

from . import _weir
from ._consumer import Consumer, Fetch, Info
from ._errors import NotFound
from ._listing import child, entries, file_name

#: Maximum number of ranges that are fetched in parallel.
SIDE_BY_SIDE = 64


class StreamCache(BaseCache):  # type: ignore[misc]
    """Keeps one fetch open during sequential reads."""

    name = "weir"

    def __init__(self, blocksize: int, fetcher: Any, size: int) -> None:
        super().__init__(blocksize, fetcher, size)
        self._stream: _weir.Stream | None = None
        self._at = 0
        # The bytes read last, because readers often go back a little.
        self._kept, self._kept_at = b"", 0

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        start, stop = start or 0, self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        end = self._kept_at + len(self._kept)
        if self._kept_at <= start < end:
            head = self._kept[start - self._kept_at : stop - self._kept_at]
            return head if stop <= end else head + self._fetch(end, stop)
        if start != self._at:
            # Another position: fetch little more than requested, until a read continues here.
            self.close()
            ahead = max(stop, min(start + self.blocksize, self.size))
            octets: bytes = self.fetcher(start, ahead)
        else:
            if self._stream is None:
                self._stream = self.fetcher.__self__.source.stream(start, self.size)
            octets = self._stream.read(stop - start)
        self._at = start + len(octets)
        self._kept = octets[-self.blocksize :]
        self._kept_at = self._at - len(self._kept)
        return octets[: stop - start]

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def __getstate__(self) -> dict[str, Any]:
        self.close()
        return self.__dict__.copy()


register_cache(StreamCache, clobber=True)


class NdnFile(AbstractBufferedFile):  # type: ignore[misc]
    """An object that is open for reading."""

    DEFAULT_BLOCK_SIZE = 64 * 1024

    def __init__(self, fs: NdnFileSystem, path: str, source: _weir.Source, **given: Any) -> None:
        self.source = source
        super().__init__(fs, path, **given)

    def _fetch_range(self, start: int, end: int) -> bytes:
        stream = self.source.stream(start, end)
        try:
            return stream.read(end - start)
        finally:
            stream.close()

    def close(self) -> None:
        if isinstance(getattr(self, "cache", None), StreamCache):
            self.cache.close()
        super().close()


class NdnFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The read-only file system `ndn://`. `weir.put` and `weir put` publish.

    `storage_options` are those of `weir.Consumer`: `router`, `anchors`, `allow_unsigned`,
    `accept_unverified`, `hicn_key` and the options of fetches. The latest version of a name is
    cached for `expiry` seconds. Names with a version refer to that version.
    """

    protocol = "ndn"
    root_marker = "/"

    def __init__(self, *args: Any, expiry: float = 60, **options: Any) -> None:
        names = ["router", "anchors", "allow_unsigned", "accept_unverified", "hicn_key"]
        names += [row[0] for row in _weir.consumer_options()]
        given = {name: options.pop(name) for name in names if name in options}
        super().__init__(*args, **options)
        self.consumer = Consumer(**given)
        self.expiry = expiry
        self._found: dict[str, tuple[float, _weir.Source, Info]] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(path)
        text = text.removeprefix("ndn://").removeprefix("ndn:")
        return "/" + text.strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return f"ndn://{self._strip_protocol(name)}"

    def _find(self, path: str) -> tuple[_weir.Source, Info]:
        path = self._strip_protocol(path)
        now = time.monotonic()
        found = self._found.get(path)
        if found is None or found[0] < now:
            source = self.consumer.source(path)
            info = Info(**source.stream(0, 0).info())
            if info.size is None:
                raise NotFound(f"the producer of {path} does not state its size: use weir.get")
            found = self._found[path] = (now + self.expiry, source, info)
        return found[1:]

    def invalidate_cache(self, path: str | None = None) -> None:
        if path is None:
            self._found.clear()
        else:
            self._found.pop(self._strip_protocol(path), None)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path == "/":
            return {"name": path, "size": 0, "type": "directory"}
        info = self._find(path)[1]
        return {
            "name": path,
            "size": 0 if info.is_directory else info.size,
            "type": "directory" if info.is_directory else "file",
            "version": info.version,
            "versioned": info.name,
            "mtime": info.mtime,
        }

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        source, info = self._find(path)
        if not info.is_directory:
            return [self.info(path)] if detail else [path]
        listed = entries(bytes(source.stream().whole()))
        names = [(child(path, part), is_directory) for part, is_directory in listed]
        if not detail:
            return [name for name, _ in names]
        self._find_all([name for name, is_directory in names if not is_directory])
        return [
            {"name": name, "size": 0, "type": "directory"} if is_directory else self.info(name)
            for name, is_directory in names
        ]

    def _find_all(self, paths: list[str]) -> None:
        """Finds many objects in parallel."""
        for at in range(0, len(paths), SIDE_BY_SIDE):
            now = time.monotonic()
            sources = {
                path: self.consumer.source(path)
                for path in paths[at : at + SIDE_BY_SIDE]
                if path not in self._found or self._found[path][0] < now
            }
            streams = {path: source.stream(0, 0) for path, source in sources.items()}
            for path, stream in streams.items():
                found = (now + self.expiry, sources[path], Info(**stream.info()))
                self._found[path] = found

    def created(self, path: str) -> Any:
        return self.modified(path)

    def modified(self, path: str) -> Any:
        import datetime

        info = self._find(path)[1]
        seconds = info.mtime if info.mtime is not None else (info.version or 0) / 1000
        return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)

    def checksum(self, path: str) -> str:
        return self._find(path)[1].name

    def ukey(self, path: str) -> str:
        """The latest version, looked up now. Caches compare it with theirs."""
        self.invalidate_cache(path)
        return self.checksum(path)

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **given: Any,
    ) -> None:
        """Like fsspec. Files get the producer's file names, not percent-encoded ones."""
        if isinstance(lpath, str):
            lister = _Lister(self)
            lister.get(rpath, lpath, recursive=recursive, maxdepth=maxdepth)
            base = make_path_posix(lpath)
            rpath = [remote for remote, _ in lister.pairs]
            lpath = [_decoded(local, base) for _, local in lister.pairs]
        super().get(rpath, lpath, recursive, callback, maxdepth, **given)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **given: Any) -> NdnFile:
        if mode != "rb":
            raise NotImplementedError("ndn:// is read-only; publish with weir.put")
        source, info = self._find(path)
        if info.is_directory:
            raise IsADirectoryError(path)
        given.pop("autocommit", None)
        given["cache_type"] = given.get("cache_type") or "weir"
        block_size = block_size or NdnFile.DEFAULT_BLOCK_SIZE
        given.setdefault("size", info.size)
        return NdnFile(self, path, source, mode=mode, block_size=block_size, **given)

    def _range(self, path: str, start: int | None, end: int | None) -> tuple[_weir.Stream, int]:
        source, info = self._find(path)
        size = info.size or 0
        first, last, _ = slice(start, end).indices(size)
        return source.stream(first, max(first, last)), max(0, last - first)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        stream, count = self._range(path, start, end)
        with Fetch(stream) as fetch:
            return fetch.read(count)

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Fetches several ranges in parallel."""
        count = len(paths)
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * count
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * count
        wanted = list(zip(paths, starts, ends, strict=True))
        results: list[Any] = []
        for at in range(0, count, SIDE_BY_SIDE):
            begun: list[Any] = []
            for one in wanted[at : at + SIDE_BY_SIDE]:
                begun.append(self._try(on_error, lambda one=one: self._range(*one)))
            for one in begun:
                if isinstance(one, Exception):
                    results.append(one)
                    continue
                stream, octets = one
                results.append(self._try(on_error, lambda s=stream, n=octets: s.read(n)))
                stream.close()
        return results

    @staticmethod
    def _try(on_error: str, what: Any) -> Any:
        try:
            return what()
        except Exception as error:
            if on_error == "raise":
                raise
            return error


class _Lister(NdnFileSystem):
    """Records what `get` would write, without writing."""

    cachable = False
    protocol = "ndn-lister"

    def __init__(self, fs: NdnFileSystem) -> None:
        AbstractFileSystem.__init__(self)
        self.consumer, self.expiry, self._found = fs.consumer, fs.expiry, fs._found
        self.pairs: list[tuple[str, str]] = []

    def get(self, *args: Any, **given: Any) -> None:
        AbstractFileSystem.get(self, *args, **given)

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        self.pairs.append((rpath, lpath))


def _decoded(local: str, base: str) -> str:
    """A path below `base`. Decodes its components, which are those of a name."""
    below = local.removeprefix(base)
    return base + "/".join(file_name(part) if part else part for part in below.split("/"))
