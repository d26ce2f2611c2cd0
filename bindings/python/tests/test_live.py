import asyncio
import contextlib
import os
import pickle
import socket
import threading
import time

import pytest

import weir

UNSIGNED = {"allow_unsigned": True}
SHORT = {"lifetime": "200ms", "retries": 1}


def message(number):
    return f"message {number}".encode()


def test_tasks_follow_an_object_that_grows():
    async def read(fetch):
        return [bytes(piece) async for piece in fetch]

    async def main():
        consumer = weir.Consumer("/t/live", **UNSIGNED)
        # A reader that joins gets the part that was appended last.
        given = {"sign": "digest", "metadata_freshness": 0}
        async with weir.Producer("/t/live", **given) as producer:
            async with producer.publish_live("/t/live/news") as news:
                early = consumer.fetch_newest("/t/live/news")
                info = await early.info()
                assert (info.name, info.segments, info.next_segment) == (news.name, None, 0)
                early = asyncio.create_task(read(early))
                for number in range(20):
                    assert news.next_segment == number
                    await news.append(message(number))
                late = consumer.fetch_newest("/t/live/news")
                assert bytes(await late.chunk()) == message(19)
                whole = asyncio.create_task(read(consumer.fetch("/t/live/news")))
                # Appends that start together are published in the order of the calls.
                await asyncio.gather(*[news.append(message(number)) for number in range(20, 40)])
            messages = [message(number) for number in range(40)]
            assert await early == messages and await whole == messages
            assert await read(late) == messages[20:] and late.missed == 0
            assert await late.chunk() is None
            assert bytes(await consumer.fetch("/t/live/news")) == b"".join(messages)
            info = await consumer.info("/t/live/news")
            assert (info.name, info.segments) == (news.name, 41)
            for late in [news.append(b"x"), news.finish()]:
                with pytest.raises(weir.ClosedError):
                    await late

    asyncio.run(main())


def test_threads_follow_an_object_that_grows():
    with weir.Producer("/t/log", metadata_freshness=0) as producer:
        with producer.publish_live("/t/log/a") as log:
            fetch = weir.Consumer("/t/log").fetch_newest("/t/log/a")
            with pytest.raises(weir.TimedOut):
                fetch.chunk().wait(0.1)
            log.append(b"one").wait()
            assert bytes(fetch.chunk().wait(30)) == b"one"
            log.append(memoryview(bytes(20_000))).wait()
            assert fetch.read(20_000) == bytes(20_000)
            log.append(b"two").wait()
            log.finish().wait()
        assert b"".join(fetch) == b"two" and fetch.is_verified
        log.close()
        with pytest.raises(weir.InvalidName, match="below"):
            producer.publish_live("/elsewhere").wait()
        with pytest.raises(weir.WeirError, match="version"):
            weir.Consumer().fetch_newest(log.name)
        kept = producer.publish_live("/t/log/kept").wait()
        assert producer.publish_live("/t/log/kept").wait().name != kept.name
    with pytest.raises(weir.ClosedError):
        kept.append(b"x").wait()


def test_what_is_left_without_an_end_is_superseded():
    with weir.Producer("/t/left", sign="digest", metadata_freshness=0) as producer:
        consumer = weir.Consumer(**UNSIGNED, **SHORT)
        with pytest.raises(KeyError), producer.publish_live("/t/left/a") as log:
            log.append(b"one").wait()
            fetch = consumer.fetch_newest("/t/left/a")
            assert bytes(fetch.chunk().wait()) == b"one"
            raise KeyError
        with producer.publish_live("/t/left/a") as log:
            log.append(b"new").wait()
            with pytest.raises(weir.Superseded, match="without a version"):
                fetch.wait(60)
            assert bytes(consumer.fetch_newest("/t/left/a").chunk().wait()) == b"new"


def test_a_slow_reader_goes_on_with_the_newest_if_it_wants_to():
    given = {"input_buffer": "64KiB", **UNSIGNED}
    with weir.Producer("/t/slow", sign="digest", segment_size=1000) as producer:
        with producer.publish_live("/t/slow/a") as film:
            film.append(b"0" * 1000).wait()
            fetches = {
                behind: weir.Consumer(behind=behind, **given).fetch_newest("/t/slow/a")
                for behind in ["in-order", "skip"]
            }
            assert all(len(fetch.chunk().wait()) == 1000 for fetch in fetches.values())
            for number in range(1, 400):
                film.append(str(number).encode().ljust(1000)).wait()
        pieces = {
            behind: [int(bytes(piece)) for piece in fetch if len(piece)]
            for behind, fetch in fetches.items()
        }
        assert pieces["in-order"] == list(range(1, 400))
        assert pieces["skip"] == sorted(set(pieces["skip"])) and len(pieces["skip"]) < 399
        assert fetches["in-order"].missed == 0
        assert fetches["skip"].missed == 399 - len(pieces["skip"])


def test_a_server_gets_what_a_client_offers_and_answers():
    photo = os.urandom(100_000)

    async def serve(server):
        async for request in server.requests():
            try:
                offer = request.offer()
            except weir.WeirError as error:
                await server.answer(request, str(error).encode())
                continue
            if offer is None:
                request.refuse()
            elif offer.size > 1_000_000:
                await server.answer(request, b"too much")
            else:
                got = await weir.Consumer(**UNSIGNED).fetch(offer.name)
                await server.answer(request, b"got it" if bytes(got) == photo else b"no")

    async def main():
        consumer = weir.Consumer("/t/server", **UNSIGNED)
        async with (
            weir.Producer("/t/server", sign="digest", request_wait=30) as server,
            weir.Producer("/t/client", sign="digest") as client,
        ):
            serving = asyncio.create_task(serve(server))
            assert await client.offer_of("/t/client/photo") is None
            offer = await client.offer("/t/client/photo", photo)
            assert offer.name.startswith("/t/client/photo/v=") and offer.size == 100_000
            latest = await client.offer_of("/t/client/photo")
            copies = [weir.Offer(bytes(offer)), pickle.loads(pickle.dumps(offer))]
            for offer in [offer, latest, *copies]:
                answer = await consumer.send("/t/server/upload", offer)
                assert bytes(answer) == b"got it", answer
            assert answer.name.startswith("/t/server/upload/params-sha256=")
            assert answer.content == b"got it" and b"got it" in bytes(answer.packet)
            large = await client.offer("/t/client/large", bytes(1_000_001))
            assert bytes(await consumer.send("/t/server/upload", large)) == b"too much"
            bad = await consumer.express("/t/server/upload", b"rubbish")
            assert b"no offer" in bytes(bad)
            own = await server.offer("/t/server/own", b"x")
            answer = await consumer.send("/t/server/upload", own)
            assert b"which this producer serves" in bytes(answer)
            with pytest.raises(weir.InvalidName):
                await consumer.send("/t/elsewhere", offer)
        await asyncio.wait_for(serving, 10)

    asyncio.run(main())
    with pytest.raises(weir.WeirError, match="no offer"):
        weir.Offer(b"rubbish")


def test_names_and_signatures_of_hicn(weir_program, tmp_path):
    served = {"mapping": "hicn:2001:db8:7::/48"}
    offered = {"mapping": "hicn:2001:db8:8::/48"}
    signed = {"signature_format": "hicn", "metadata_freshness": 0}
    photo = os.urandom(50_000)
    with (
        weir.Producer("/t/hicn", request_wait=30, **served, **signed) as server,
        weir.Producer("/t/own", **offered, **signed) as client,
    ):
        consumer = weir.Consumer("/t/hicn", **served)
        server.publish("/t/hicn/a", photo).wait()
        assert consumer.fetch("/t/hicn/a").wait(30) == photo
        with server.publish_live("/t/hicn/log") as log:
            log.append(b"one").wait()
            fetch = consumer.fetch_newest("/t/hicn/log")
            assert bytes(fetch.chunk().wait(30)) == b"one"
            log.append(b"two").wait()
            log.finish().wait()
            assert b"".join(fetch) == b"two" and fetch.is_verified
        # A request names what is not published yet.
        later = consumer.fetch("/t/hicn/later")
        read = []
        reading = threading.Thread(target=lambda: read.append(later.wait(30)))
        reading.start()
        request = server.request().wait(30)
        assert (request.name, request.parameters) == ("/t/hicn/later", None)
        server.publish(request.name, b"late").wait()
        reading.join()
        assert read == [b"late"]
        # An offer, and its answer.
        offer = client.offer("/t/own/photo", photo).wait()
        asked = []

        def answer():
            request = server.request().wait(30)
            source = weir.Consumer("/t/own", **offered)
            asked.append((request.name, source.fetch(request.offer().name).wait(30) == photo))
            server.answer(request, b"got it").wait()

        answering = threading.Thread(target=answer)
        answering.start()
        assert bytes(consumer.send("/t/hicn/upload", offer).wait(30)) == b"got it"
        answering.join()
        assert asked == [("/t/hicn/upload", True)]
    with weir.Producer("hicn:b001::/16", mapping="hicn:b001::/16", **signed) as direct:
        name = direct.publish("hicn:b001::1", photo).wait()
        assert name == "/32=hicn/%B0%01" + 6 * "/%00%00" + "/%00%01"
        with pytest.raises(weir.WeirError, match="no versions"):
            direct.publish_live("hicn:b001::1").wait()
    # Packets do not name the key of hICN's signature, and no signature covers the end.
    key = tmp_path / "key.cert"
    weir_program("key", "new", "/t/hicn-key")
    weir_program("key", "export", "/t/hicn-key", "--output", str(key))
    prefix = {"mapping": "hicn:b002::/16", "sign": "/t/hicn-key"}
    with weir.Producer("hicn:b002::/16", **prefix, **signed) as direct:
        direct.publish("hicn:b002::1", photo).wait()
        with weir.Consumer(hicn_key=key).fetch("hicn:b002::1") as fetch:
            assert fetch.wait(30) == photo and fetch.is_verified and not fetch.is_end_signed
        assert weir.get("hicn:b002::1", hicn_key=key) == photo
    with pytest.raises(weir.KeyChainError, match="cannot read /none"):
        weir.get("hicn:b002::1", hicn_key="/none")
    with pytest.raises(weir.WeirError, match="needs a mapping"):
        weir.Producer("/t/q", **signed).__enter__()


def test_single_interests_are_answered_or_not():
    asked = []

    def answer(server):
        with contextlib.suppress(weir.ClosedError):
            while True:
                request = server.request().wait()
                asked.append((request.name, request.parameters))
                if request.parameters == b"no":
                    request.refuse()
                elif request.parameters != b"silence":
                    server.answer(request, (request.parameters or b"nothing")[::-1]).wait()

    consumer = weir.Consumer("/t/echo", lifetime="5s")
    with weir.Producer("/t/echo") as server:
        server.publish_packet(packet := unsigned_data("/t/echo/ready", b"r")).wait()
        found = consumer.express("/t/echo/ready").wait()
        assert (found.name, bytes(found), bytes(found.packet)) == ("/t/echo/ready", b"r", packet)
        found = consumer.express("/t/echo", can_be_prefix=True).wait()
        assert found.name == "/t/echo/ready"
        thread = threading.Thread(target=answer, args=[server])
        thread.start()
        assert bytes(consumer.express("/t/echo/a").wait()) == b"gnihton"
        assert bytes(consumer.express("/t/echo/a", b"abc").wait()) == b"cba"
        with pytest.raises(weir.NotFound):
            consumer.express("/t/echo/a", b"no").wait()
        with pytest.raises(weir.TimedOut, match="weir put"):
            weir.Consumer(lifetime="200ms").express("/t/echo/a", b"silence").wait()
        with pytest.raises(weir.TimedOut, match="longer timeout"):
            consumer.express("/t/echo/b", b"silence").wait(0.05)
        with pytest.raises(weir.TooLong):
            consumer.express("/t/echo/a", bytes(9000)).wait()
        with pytest.raises(weir.TooLong):
            answer = consumer.express("/t/echo/long", b"x" * 8750)
            answer.wait()
    thread.join(10)
    assert asked[0] == ("/t/echo/a", None)
    assert asked[1][0].startswith("/t/echo/a/params-sha256=") and asked[1][1] == b"abc"


def tlv(kind, value):
    assert len(value) < 253
    return bytes([kind, len(value)]) + value


def unsigned_data(name, content):
    """A Data with a digest signature, which is not verified."""
    parts = b"".join(tlv(8, part.encode()) for part in name.strip("/").split("/"))
    info, value = tlv(0x16, tlv(0x1B, b"\0")), tlv(0x17, bytes(32))
    return tlv(6, tlv(7, parts) + tlv(0x15, content) + info + value)


class Relay:
    """A proxy of a router's socket that holds back the router's answers until it is opened."""

    def __init__(self, path, router):
        self.path, self.router = str(path), router
        self.opened, self.asked = threading.Event(), threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                ours = self.listener.accept()[0]
                theirs = socket.socket(socket.AF_UNIX)
                theirs.connect(self.router)
                for way in [(ours, theirs, False), (theirs, ours, True)]:
                    threading.Thread(target=self.copy, args=way, daemon=True).start()

    def copy(self, source, sink, waits):
        with contextlib.suppress(OSError):
            while octets := source.recv(1 << 16):
                if b"\x08\x08register" in octets:
                    self.asked.set()
                if waits:
                    self.opened.wait()
                sink.sendall(octets)

    def close(self):
        self.listener.close()


@pytest.fixture
def relay(tmp_path):
    router = os.environ["NDN_CLIENT_TRANSPORT"].removeprefix("unix://")
    relay = Relay(tmp_path / "relay", router)
    yield relay
    relay.close()


def cancelled(producer, relay, then):
    relay.asked.clear()

    async def main():
        bind = asyncio.ensure_future(producer.bind())
        while not relay.asked.is_set():
            assert not bind.done()
            await asyncio.sleep(0.005)
        bind.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bind
        # Closing the event loop waits for its threads.
        then()

    asyncio.run(main())


def timed_out(producer, relay, then):
    relay.asked.clear()
    with pytest.raises(weir.TimedOut):
        producer.bind().wait(0.3)
    assert relay.asked.wait(30)
    then()


def closed(producer, relay, then):
    thread = threading.Thread(target=lambda: relay.asked.wait() and producer.close())
    thread.start()
    with pytest.raises(weir.ClosedError):
        producer.bind().wait(30)
    thread.join()
    then()


@pytest.mark.parametrize("gives_up", [cancelled, timed_out, closed])
def test_a_bind_that_is_given_up_does_not_stay_bound(relay, weir_program, gives_up):
    given = {"router": f"unix://{relay.path}", "sign": "digest"}
    producer = weir.Producer("/t/given/up", **given)
    gives_up(producer, relay, relay.opened.set)
    with weir.Producer("/t/given/other", **given):
        until = time.monotonic() + 30
        while "/t/given/up" in (listed := weir_program("route", "list")):
            assert time.monotonic() < until, listed
        assert "/t/given/other" in listed
    with producer:
        producer.publish("/t/given/up/x", b"x").wait()
        assert bytes(weir.get("/t/given/up/x", **UNSIGNED)) == b"x"


def test_a_prefix_is_free_as_soon_as_its_bind_is_given_up(relay):
    given = {"router": f"unix://{relay.path}", "sign": "digest"}
    for gives_up in [timed_out, cancelled, timed_out]:
        gives_up(weir.Producer("/t/given/free", **given), relay, lambda: None)
    threading.Timer(0.2, relay.opened.set).start()
    with weir.Producer("/t/given/free", **given) as producer:
        producer.publish("/t/given/free/x", b"x").wait()
        assert bytes(weir.get("/t/given/free/x", **UNSIGNED)) == b"x"


def test_a_producer_is_bound_by_one_at_a_time(relay):
    producer = weir.Producer("/t/given/once", router=f"unix://{relay.path}", sign="digest")

    async def main():
        bind = asyncio.ensure_future(producer.bind())
        while not relay.asked.is_set():
            await asyncio.sleep(0.005)
        with pytest.raises(weir.BusyError, match="binds"):
            await producer.bind()
        relay.opened.set()
        assert await bind is producer and await producer.bind() is producer
        producer.close()

    asyncio.run(main())


class ClosedOnceBound:
    """A binding whose producer is closed by another thread just before `_outlet` is set."""

    producer = None

    def __init__(self, *given):
        self._inner = BINDING(*given)
        self.begin, self.close = self._inner.begin, self._inner.close

    def wait(self, timeout):
        outlet = self._inner.wait(timeout)
        self._close()
        return outlet

    def poll(self, bell, token):
        found = self._inner.poll(bell, token)
        if found is not None:
            self._close()
        return found

    def _close(self):
        thread = threading.Thread(target=self.producer.close)
        thread.start()
        thread.join()


BINDING = weir._weir.Binding


async def awaited(bind):
    await bind


@pytest.mark.parametrize("how", [lambda bind: bind.wait(), lambda bind: asyncio.run(awaited(bind))])
def test_a_producer_closed_as_it_is_bound_is_not_bound(monkeypatch, how):
    producer = weir.Producer("/t/closed", sign="digest")
    with monkeypatch.context() as patch:
        patch.setattr(weir._weir, "Binding", ClosedOnceBound)
        patch.setattr(ClosedOnceBound, "producer", producer)
        with pytest.raises(weir.ClosedError, match="while it was bound"):
            how(producer.bind())
    # The prefix is free, and the producer can be bound again.
    with weir.Producer("/t/closed", sign="digest"):
        pass
    with producer:
        producer.publish("/t/closed/x", b"x").wait()
