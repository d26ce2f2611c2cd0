import os
import pickle

import dask
import dask.dataframe
import distributed
import fsspec
import numpy
import pandas
import pytest
import uproot
import xarray

import weir

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def table():
    numbers = numpy.random.default_rng(1).random((200_000, 6))
    return pandas.DataFrame(numbers, columns=list("abcdef"))


@pytest.fixture(scope="module")
def data(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("data")
    table.to_parquet(folder / "t.parquet", row_group_size=50_000)
    (folder / "parts").mkdir()
    for number in range(4):
        part = table.iloc[number * 1000 : (number + 1) * 1000]
        part.to_parquet(folder / "parts" / f"{number}.parquet")
    xarray.Dataset({"x": ("i", numpy.arange(1000.0))}).to_netcdf(
        folder / "x.nc", engine="h5netcdf"
    )
    with uproot.recreate(folder / "x.root") as file:
        file["tree"] = {"x": numpy.arange(1000.0)}
    (folder / "a b%").write_bytes(bytes(range(256)))
    with weir.put("/t/data", folder):
        yield folder


@pytest.fixture
def counted(monkeypatch):
    """Number of bytes in the requested ranges that have an end."""
    ranges = []
    import weir.fs

    class Counting:
        def __init__(self, source):
            self.source = source

        def stream(self, start=0, end=None):
            ranges.append((start, end))
            return self.source.stream(start, end)

    source = weir.Consumer.source
    monkeypatch.setattr(
        weir.Consumer, "source", lambda self, name: Counting(source(self, name))
    )
    fsspec.filesystem("ndn").invalidate_cache()
    yield ranges
    fsspec.filesystem("ndn").invalidate_cache()


def test_columns_of_parquet_are_got_alone(data, table, counted):
    url = "ndn:///t/data/t.parquet"
    column = pandas.read_parquet(url, columns=["c"])
    assert column["c"].equals(table["c"])
    size = os.path.getsize(data / "t.parquet")
    assert None not in [end for _, end in counted]
    asked = sum(end - start for start, end in counted)
    assert 0 < asked < size / 3, (asked, size, counted)
    assert pandas.read_parquet(url).equals(table)


def test_files_are_read_and_sought(data):
    fs = fsspec.filesystem("ndn")
    expected = (data / "t.parquet").read_bytes()
    path = "ndn:///t/data/t.parquet"
    assert fs.size(path) == len(expected) and fs.isfile(path) and not fs.isdir(path)
    assert not fs.exists("ndn:///t/data/none")
    with pytest.raises(FileNotFoundError):
        fs.open("ndn:///t/data/none")
    with fs.open(path) as file:
        assert file.read() == expected
        for place, whence in [(5, 0), (-10, 2), (len(expected), 0), (100_000, 0), (60_000, 0)]:
            at = file.seek(place, whence)
            assert file.read(20_000) == expected[at : at + 20_000]
    for cache in [None, "readahead", "all", "none"]:
        with fs.open(path, cache_type=cache) as file:
            pieces = []
            while piece := file.read(33_333):
                pieces.append(piece)
            assert b"".join(pieces) == expected, cache
    starts, ends = [0, 10, -5, 7_999], [5, 20, None, 8_001]
    ranges = fs.cat_ranges([path] * 4, starts, ends, on_error="raise")
    assert ranges == [expected[s:e] for s, e in zip(starts, ends, strict=True)]
    failed = fs.cat_ranges([path, "/t/data/none"], [0, 0], [1, 1])
    assert failed[0] == expected[:1] and isinstance(failed[1], FileNotFoundError)
    assert fs.cat_file("ndn:///t/data/a%20b%25", 3, 7) == bytes([3, 4, 5, 6])
    with pytest.raises(NotImplementedError):
        fs.open(path, "wb")
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat_file(path, 0, 4) == b"PAR1"


def test_folders_are_listed(data):
    fs = fsspec.filesystem("ndn")
    names = sorted(fs.ls("/t/data", detail=False))
    assert names == [
        "/t/data/a%20b%25",
        "/t/data/parts",
        "/t/data/t.parquet",
        "/t/data/x.nc",
        "/t/data/x.root",
    ]
    assert fs.isdir("/t/data/parts") and len(fs.glob("ndn:///t/data/parts/*.parquet")) == 4
    assert fs.du("/t/data") == sum(
        file.stat().st_size for file in data.rglob("*") if file.is_file()
    )


def test_dask_reads_in_two_processes(data, table):
    for method in ["fork", "spawn"]:
        with dask.config.set(
            scheduler="processes", num_workers=2, **{"multiprocessing.context": method}
        ):
            frame = dask.dataframe.read_parquet("ndn:///t/data/parts/*.parquet")
            assert frame["b"].sum().compute() == pytest.approx(table["b"][:4000].sum())


def read_part(url):
    return os.getpid(), pandas.read_parquet(url, columns=["b"])["b"].sum()


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_cluster_of_dask_reads_in_two_worker_processes(data, table, method):
    fsspec.filesystem("ndn").cat_file("ndn:///t/data/parts/0.parquet")  # this process has a session
    given = {"distributed.worker.multiprocessing-method": method}
    with (
        dask.config.set(given),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            processes=True,
            dashboard_address="127.0.0.1:0",
            local_directory=str(data.parent / method),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = list(client.scheduler_info()["workers"])
        assert len(workers) == 2
        urls = [f"ndn:///t/data/parts/{number}.parquet" for number in range(4)]
        read = [
            client.submit(read_part, url, workers=[workers[number % 2]], pure=False)
            for number, url in enumerate(urls)
        ]
        found = client.gather(read)
        assert len({process for process, _ in found} - {os.getpid()}) == 2
        sums = [table["b"][at : at + 1000].sum() for at in range(0, 4000, 1000)]
        assert [sum for _, sum in found] == pytest.approx(sums)
        frame = dask.dataframe.read_parquet("ndn:///t/data/parts/*.parquet")
        assert frame["b"].sum().compute() == pytest.approx(table["b"][:4000].sum())
        means = frame.assign(high=frame["c"] > 0.5).groupby("high")["d"].mean().compute()
        rows = table[:4000].assign(high=table["c"][:4000] > 0.5)
        assert dict(means) == pytest.approx(dict(rows.groupby("high")["d"].mean()))


def test_xarray_and_uproot_open_files(data):
    with fsspec.open("ndn:///t/data/x.nc") as file:
        with xarray.open_dataset(file, engine="h5netcdf") as found:
            assert float(found["x"].sum()) == 999 * 500
    with uproot.open("ndn:///t/data/x.root:tree") as tree:
        assert tree["x"].array(library="np").sum() == 999 * 500


def test_folders_are_got_under_the_names_of_their_files(data, tmp_path):
    names = ["a b.csv", "100%.txt", "naïve", "a=b", "...", "sub dir/[1]*?.txt"]
    source = tmp_path / "source"
    (source / "sub dir").mkdir(parents=True)
    for name in names:
        (source / name).write_text(name)
    fs = fsspec.filesystem("ndn")
    with weir.put("/t/names", source):
        fs.get("/t/names", f"{tmp_path}/new", recursive=True)
        fs.get("/t/names/a%20b.csv", f"{tmp_path}/as%20told")
        (tmp_path / "into").mkdir()
        fs.get("/t/names/a%20b.csv", f"{tmp_path}/into")
    found = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(tmp_path / "new")) for path in found) == sorted(names)
    assert all(path.read_text() == str(path.relative_to(tmp_path / "new")) for path in found)
    assert (tmp_path / "as%20told").exists() and (tmp_path / "into" / "a b.csv").exists()


def test_caches_that_check_files_have_the_latest(tmp_path):
    options = {"cache_storage": f"{tmp_path}/cache", "check_files": True}
    cached = fsspec.filesystem("filecache", target_protocol="ndn", **options)
    for content in [b"one", b"two two"]:
        with weir.put("/t/cached", content):
            assert cached.cat("/t/cached") == content
            assert cached.cat("/t/cached") == content
