import array
import asyncio
import gc
import os
import pickle
import threading
import time

import numpy
import pytest

import weir

UNSIGNED = {"allow_unsigned": True}
SHORT = {"lifetime": "200ms", "retries": 1}


def test_octets_are_put_and_got_without_copies():
    content = os.urandom(100_001)
    with weir.put("/t/octets", content) as served:
        got = weir.get("/t/octets")
        assert got == weir.get(served.name)
        assert len(got) == len(content) and bytes(got) == content
        for same in [content, bytearray(content), memoryview(content)]:
            assert got == same and same == got and got != same[1:] and got[1:] != same
        assert got != "text" and got != 5 and got != array.array("d", [1.0])
        view = memoryview(got)
        assert view.readonly and view.nbytes == len(content)
        numbers = numpy.frombuffer(got, dtype=numpy.uint8)
        again = numpy.frombuffer(got, dtype=numpy.uint8)
        assert numbers.__array_interface__["data"] == again.__array_interface__["data"]
        part = got[5:10]
        assert bytes(part) == content[5:10] and got[-1] == content[-1]
        assert bytes(got[::-7]) == content[::-7]
        with pytest.raises(IndexError):
            got[len(content)]
        assert bytes(weir.get("/t/octets", range=(10, 30_000))) == content[10:30_000]
        assert bytes(weir.get("/t/octets", range=(100_000, None))) == content[100_000:]
        assert bytes(weir.get("/t/octets", range=(200_000, 300_000))) == b""
        del got, view, part
        gc.collect()
        assert numbers.tobytes() == content


@pytest.mark.parametrize(
    "content",
    [b"", b"x", bytearray(b"abc"), memoryview(b"abc"), array.array("d", [1.5, 2.5])],
)
def test_anything_with_octets_can_be_put(content):
    with weir.put("/t/any", content, sign="digest"):
        assert bytes(weir.get("/t/any", **UNSIGNED)) == bytes(memoryview(content).cast("B"))


def test_arrays_go_there_and_back():
    table = numpy.arange(30_000, dtype=numpy.float32).reshape(100, 300)
    with weir.put("/t/array", table):
        got = numpy.frombuffer(weir.get("/t/array"), dtype=numpy.float32).reshape(100, 300)
    assert (got == table).all()


def test_files_and_folders(tmp_path, weir_program):
    folder = tmp_path / "folder"
    (folder / "in ner").mkdir(parents=True)
    (folder / "a").write_bytes(os.urandom(50_000))
    (folder / "in ner" / "...").write_bytes(b"dots")
    (folder / "link").symlink_to("a")
    with weir.put("/t/folder", folder):
        weir.get("/t/folder", to=tmp_path / "got")
        weir_program("get", "/t/folder", "-o", str(tmp_path / "theirs"))
        weir.get("/t/folder/a", to=tmp_path / "alone")
        with pytest.raises(TypeError):
            weir.get("/t/folder/a", to=tmp_path / "alone", range=(0, 1))
        with pytest.raises(OSError):
            weir.get("/t/folder/a", to=tmp_path / "none" / "alone")
    expected = (folder / "a").read_bytes()
    for place in ["got", "theirs"]:
        assert (tmp_path / place / "a").read_bytes() == expected
        assert (tmp_path / place / "in ner" / "...").read_bytes() == b"dots"
    assert (tmp_path / "alone").read_bytes() == expected
    assert not (tmp_path / "got" / "link").exists()


def test_a_file_that_changes_is_lost_and_said_so(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a" * 100_000)
    with weir.put("/t/changes", path) as served:
        assert len(weir.get("/t/changes")) == 100_000
        path.write_bytes(b"b")
        for _ in range(200):
            if served.lost:
                break
            time.sleep(0.05)
        assert "changed" in served.lost[0]


def test_tasks_fetch_publish_and_answer():
    async def main(version):
        content = os.urandom(200_000)
        consumer = weir.Consumer("/t", input_buffer="1MiB", **UNSIGNED)
        async with weir.Producer("/t/tasks", sign="digest", segment_size=1000) as producer:
            name = await producer.publish("/t/tasks/a", content, version=version)
            assert name.endswith(f"/v={version}")
            info = await consumer.info("/t/tasks/a")
            assert (info.name, info.size, info.segments) == (name, 200_000, 200)
            chunks = [bytes(chunk) async for chunk in consumer.fetch("/t/tasks/a")]
            assert b"".join(chunks) == content and len(chunks) == 200
            fetches = [consumer.fetch("/t/tasks/a", at, at + 10) for at in range(0, 5000, 100)]
            for at, got in zip(range(0, 5000, 100), await asyncio.gather(*fetches), strict=True):
                assert bytes(got) == content[at : at + 10]

            async def answer():
                async for request in producer.requests():
                    if request.name.endswith("none"):
                        request.refuse()
                    else:
                        await producer.publish(request.name, request.name.encode())

            answering = asyncio.create_task(answer())
            assert (await consumer.fetch("/t/tasks/made")).decode() == "/t/tasks/made"
            with pytest.raises(FileNotFoundError):
                await weir.Consumer(**SHORT, **UNSIGNED).fetch("/t/tasks/none")
        await asyncio.wait_for(answering, 10)

    # Each thread has its own event loop.
    asyncio.run(main(7))
    asyncio.run(main(8))


def test_publications_are_awaited_without_threads_of_the_loop():
    async def main():
        loop, latest = asyncio.get_running_loop(), weir.Consumer(**UNSIGNED)
        async with weir.Producer("/t/many", sign="digest") as producer:

            def no_thread(*_):
                raise AssertionError("a thread of the loop")

            loop.run_in_executor = no_thread
            try:
                calls = [producer.publish("/t/many/x", b"%d" % at) for at in range(200)]
                names = await asyncio.gather(*reversed(calls))
                assert names == sorted(names, reverse=True) and len(set(names)) == 200
                assert bytes(await latest.fetch("/t/many/x")) == b"199"
                name = await producer.publish("/t/many/y", bytes(300_000), version=9)
                assert name == "/t/many/y/v=9"
                assert await producer.publish("/t/many/z/v=3", b"z") == "/t/many/z/v=3"
                for wrong in [producer.publish("/elsewhere", b""), producer.publish("/t/many", "")]:
                    with pytest.raises((weir.InvalidName, TypeError)):
                        await wrong
                # The publication has started or was cancelled; later ones follow.
                lost = asyncio.ensure_future(producer.publish("/t/many/x", b"cancelled"))
                await asyncio.sleep(0)
                lost.cancel()
                await producer.publish("/t/many/x", b"last")
                await asyncio.sleep(0.05)
                assert bytes(await latest.fetch("/t/many/x")) == b"last"
            finally:
                del loop.run_in_executor
            calls = [producer.publish(f"/t/many/n/{at}", bytes(2000)) for at in range(6000)]
            assert len(set(await asyncio.gather(*calls))) == 6000

    asyncio.run(main())


def test_a_producer_counts():
    with weir.Producer("/t/counted", sign="digest") as producer:
        producer.publish("/t/counted/x", bytes(20_000)).wait()
        assert producer.stats()["interests"] == 0
        assert len(weir.get("/t/counted/x", **UNSIGNED)) == 20_000
        stats = producer.stats()
        assert stats["metadata"] == 1 and stats["interests"] == stats["data"] >= 3
        assert stats["octets"] > 20_000 and stats["disk_writes"] == stats["unknown"] == 0
    with pytest.raises(weir.ClosedError):
        producer.stats()


def test_awaits_that_are_cancelled_leave_nothing_behind():
    async def main():
        async with weir.Producer("/t/cancel", sign="digest") as producer:
            consumer = weir.Consumer(**UNSIGNED)
            fetch = consumer.fetch("/t/cancel/never")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await fetch
            fetch.close()
            with pytest.raises(weir.ClosedError):
                await fetch
            other = consumer.fetch("/t/cancel/other")

            async def whole():
                return await other

            task = asyncio.create_task(whole())
            await asyncio.sleep(0.1)
            other.close()
            with pytest.raises(weir.ClosedError):
                await asyncio.wait_for(task, 10)
            await producer.publish("/t/cancel/never", b"now")
            assert bytes(await consumer.fetch("/t/cancel/never")) == b"now"

    asyncio.run(main())


def test_threads_wait_with_the_gil_released():
    with weir.Producer("/t/threads", sign="digest") as producer:
        requests = []

        def answer():
            requests.append(producer.request().wait(30))
            producer.publish(requests[0].name, b"from a thread").wait()

        thread = threading.Thread(target=answer)
        thread.start()
        assert bytes(weir.get("/t/threads/x", **UNSIGNED)) == b"from a thread"
        thread.join()
        assert requests[0].name == "/t/threads/x" and requests[0].parameters is None
        with weir.Consumer(**UNSIGNED).fetch("/t/threads/x") as fetch:
            assert fetch.read(4) == b"from" and b"".join(fetch) == b" a thread"
            assert fetch.is_verified and fetch.missed == 0
            assert fetch.read(1) == b""
        with pytest.raises(weir.TimedOut, match="longer timeout"):
            producer.request().wait(0.05)
        ended = []

        def wait():
            try:
                producer.request().wait()
            except weir.ClosedError as error:
                ended.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
    thread.join(10)
    assert len(ended) == 1


def test_one_stream_is_read_by_one_at_a_time():
    with weir.Producer("/t/busy", sign="digest"):
        fetch = weir.Consumer(**UNSIGNED).fetch("/t/busy/x")
        errors = []

        def wait():
            try:
                fetch.wait()
            except weir.ClosedError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
        with pytest.raises(weir.BusyError):
            fetch.wait()
        fetch.close()
        thread.join(10)
        assert len(errors) == 1


def test_a_wait_that_is_given_up_loses_nothing():
    content = os.urandom(20_000_000)
    # On a busy machine, everything may have arrived before the wait starts.
    given_up = 0
    with weir.put("/t/waits", content):
        for _ in range(20):
            with weir.Consumer("/t", **UNSIGNED).fetch("/t/waits") as fetch:
                try:
                    assert fetch.read(len(content), timeout=0.001) == content
                    continue
                except weir.TimedOut:
                    given_up += 1
                first = fetch.read(10, timeout=20)
                assert first == content[:10]
                assert first + b"".join(bytes(part) for part in fetch) == content
            if given_up == 3:
                return
    assert given_up > 0, "no wait was given up"


def test_failures_say_what_to_do_next():
    cases = [
        (weir.NotFound, "weir put", lambda: weir.get("/t/nobody", **SHORT)),
        (weir.InvalidName, "slash", lambda: weir.get("t/x")),
        (weir.InvalidName, "is not a name", lambda: weir.get("/t/70000=x")),
        (weir.InvalidName, "below", lambda: weir.Consumer("/t/a").fetch("/t/b")),
        (weir.OptionError, "the options are reliable", lambda: weir.Consumer(speed=1)),
        (weir.OptionError, "0 to 1000", lambda: weir.Consumer(retries=1001)),
        (weir.OptionError, "seconds", lambda: weir.Consumer(lifetime=-1)),
        (weir.OptionError, "whole number", lambda: weir.Consumer(window=1.5)),
        (weir.OptionError, "ask-again", lambda: weir.Consumer(on_bad="hope")),
        (weir.OptionError, "weir.Producer", lambda: weir.put("/t/x", b"", output_buffer=1 << 20)),
        (weir.OptionError, "digest", lambda: weir.put("/t/x", b"", sign="blood")),
        (weir.KeyChainError, "", lambda: weir.put("/t/x", b"", sign="/no/such/key")),
        (weir.KeyChainError, "none.cert", lambda: weir.get("/t/x", anchors=["none.cert"])),
        (weir.NoRouter, "weir router", lambda: weir.get("/t/x", router="/none.sock")),
        (weir.NoRouter, "weir router", lambda: weir.put("/t/x", b"", router="/none.sock")),
        (weir.WeirError, "bind", lambda: weir.Producer("/t/x").publish("/t/x", b"")),
        (FileNotFoundError, "none", lambda: weir.put("/t/x", "/none")),
        (FileNotFoundError, "directory: '/none'", lambda: weir.put("/t/x", "/none")),
        (weir.OptionError, "whole", lambda: weir.Producer("/t/x", requests_max=None)),
        (weir.OptionError, "unknown option", lambda: weir.Producer("/t/x", rooter="x")),
        (weir.OptionError, '"many" is invalid', lambda: weir.Consumer(retries="many")),
        (weir.OptionError, "64KiB to", lambda: weir.Producer("/t/x", output_buffer="lots")),
        (weir.OptionError, "from 0", lambda: weir.Consumer().fetch("/t/x", -5)),
        (weir.OptionError, "(start, end)", lambda: weir.get("/t/x", range=(5,))),
        (TypeError, "", lambda: weir.put("/t/x", 5)),
        (TypeError, "", lambda: weir.get(5)),
    ]
    for error, words, fails in cases:
        with pytest.raises(error) as raised:
            fails()
        assert words in str(raised.value), raised.value
    assert issubclass(weir.NotFound, FileNotFoundError)
    assert issubclass(weir.TimedOut, TimeoutError)
    with weir.Producer("/t/once", sign="digest") as producer:
        with pytest.raises(weir.PrefixInUse):
            weir.Producer("/t/once").bind().wait()
        with pytest.raises(weir.InvalidName, match="below"):
            producer.publish("/elsewhere", b"").wait()
        with pytest.raises(TypeError, match="encode"):
            producer.publish("/t/once/x", "text").wait()
        with pytest.raises(weir.VerificationError, match="allow_unsigned=True"):
            producer.publish("/t/once/x", b"x").wait()
            weir.get("/t/once/x")
        assert bytes(weir.get("/t/once/x", accept_unverified=True)) == b"x"
        consumer = pickle.loads(pickle.dumps(weir.Consumer(accept_unverified=True)))
        assert bytes(consumer.fetch("/t/once/x").wait()) == b"x"
        pending = producer.publish("/t/once/y", b"y")
        pending.wait()
        with pytest.raises(RuntimeError):
            pending.wait()
        with pytest.warns(RuntimeWarning, match="neither awaited"):
            del pending
            lost = producer.publish("/t/once/z", b"z")
            del lost
    with pytest.raises(weir.ClosedError):
        producer.publish("/t/once/x", b"x").wait()
    producer.close()
    with weir.Producer("/t/small", sign="digest", output_buffer=65536) as producer:
        with pytest.raises(weir.TooLong):
            producer.publish("/t/small/x", bytes(100_000)).wait()


def test_consumers_are_pickled():
    consumer = pickle.loads(pickle.dumps(weir.Consumer("/t", retries=3, **UNSIGNED)))
    with weir.put("/t/pickle", b"x", sign="digest"):
        assert bytes(consumer.fetch("/t/pickle").wait()) == b"x"


def test_a_producer_keeps_on_disk_what_memory_has_no_room_for(tmp_path):
    given = {"sign": "digest", "output_buffer": "64KiB", "disk": tmp_path, "disk_size": "8MiB"}
    with weir.Producer("/t/disk", **given) as producer:
        producer.publish("/t/disk/x", bytes(1_000_000)).wait()
        assert bytes(weir.get("/t/disk/x", allow_unsigned=True)) == bytes(1_000_000)
    with pytest.raises(weir.OptionError, match="missing"):
        weir.Producer("/t/disk", disk=tmp_path / "missing").bind().wait()
