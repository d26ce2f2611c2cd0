import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

import weir

# Python 3.12 and later warn when a process with threads forks.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def got(name):
    return bytes(weir.get(name))


def fetched(consumer):
    return bytes(consumer.fetch("/t/child").wait())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_have_sessions_of_their_own(method):
    consumer = weir.Consumer("/t")
    with weir.put("/t/child", b"for all"):
        assert fetched(consumer) == b"for all"
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(got, ["/t/child"] * 4) == [b"for all"] * 4
            assert pool.map(fetched, [consumer] * 4) == [b"for all"] * 4
        assert fetched(consumer) == b"for all"


def in_child(body):
    """The output of a child of `fork`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = body()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, str(text).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        said = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


def test_what_a_child_cannot_use_is_refused_and_not_disturbed():
    with weir.put("/t/kept", b"kept") as served, weir.Producer("/t/fork") as producer:
        producer.publish("/t/fork/x", b"x" * 100_000).wait()
        consumer = weir.Consumer()
        source = consumer.source("/t/fork/x")
        fetch = consumer.fetch("/t/fork/x")
        assert fetch.read(1) == b"x"
        refused = in_child(lambda: fetch.wait())
        assert refused.startswith("ForkedError") and "child" in refused, refused
        refused = in_child(lambda: producer.publish("/t/fork/y", b"y").wait())
        assert refused.startswith("ForkedError"), refused
        assert in_child(lambda: len(consumer.fetch("/t/fork/x").wait())) == "100000"
        assert in_child(lambda: len(source.stream().whole())) == "100000"
        assert in_child(lambda: [served.close(), producer.close(), fetch.close()]) != ""

        def forget():
            nonlocal fetch, producer, served
            fetch = producer = served = None
            return "forgotten"

        assert in_child(forget) == "forgotten"
        assert len(fetch.wait()) == 99_999
        assert bytes(weir.get("/t/kept")) == b"kept"
        assert len(weir.get("/t/fork/x")) == 100_000


def program(text, *, interrupt=None, limit=60):
    """Runs a program. With `interrupt`, sends Ctrl-C when the program requests it."""
    child = subprocess.Popen([sys.executable, "-c", text], stdout=-1, stderr=-1, text=True)
    if interrupt:
        assert child.stdout.readline().strip() == interrupt
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
    return *child.communicate(timeout=limit), child.returncode


WAITS = [
    "weir.get('/t/waits/never', allow_unsigned=True)",
    "weir.get('/t/waits/never', to='/dev/null/x', allow_unsigned=True)",
    "producer.request().wait()",
    "asyncio.run(main())",
]


@pytest.mark.parametrize("waits", WAITS)
def test_ctrl_c_ends_what_waits(waits):
    text = f"""
import asyncio, weir
producer = weir.Producer('/t/waits', sign='digest').bind().wait()
async def main():
    await weir.Consumer(allow_unsigned=True).fetch('/t/waits/never')
print('waits', flush=True)
try:
    {waits}
except KeyboardInterrupt:
    print('stopped')
"""
    output, errors, status = program(text, interrupt="waits")
    assert output == "stopped\n" and status == 0, errors


def test_a_program_may_end_with_everything_open():
    text = """
import asyncio, weir
served = weir.put('/t/ends', b'x')
producer = weir.Producer('/t/ends/p', sign='digest').bind().wait()
fetch = weir.Consumer(allow_unsigned=True).fetch('/t/ends/p/never')
octets = memoryview(weir.get('/t/ends'))
async def main():
    fetch = weir.Consumer(allow_unsigned=True).fetch('/t/ends/p/no')
    task = asyncio.create_task(fetch.__anext__())
    await asyncio.sleep(0.05)
    return task
task = asyncio.run(main())
print('end')
"""
    output, errors, status = program(text)
    assert (output, errors, status) == ("end\n", "", 0)


def test_a_router_that_restarts_finds_the_sockets_as_they_were(tmp_path):
    router = f"unix://{tmp_path}/r"

    def start():
        command = [os.environ["WEIR_BIN"], "router", "--unix", f"{tmp_path}/r"]
        command += ["--udp", "none", "--tcp", "none"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while not os.path.exists(f"{tmp_path}/r"):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.1)
        return process

    def stop(process):
        process.kill()
        process.wait()
        os.unlink(f"{tmp_path}/r")

    process = start()
    consumer = weir.Consumer(router=router)
    with (
        weir.put("/t/put", b"put", router=router),
        weir.Producer("/t/p", router=router) as producer,
    ):
        producer.publish("/t/p/x", b"x").wait()
        assert bytes(consumer.fetch("/t/p/x").wait()) == b"x"
        stop(process)
        process = start()
        for name, content in [("/t/p/x", b"x"), ("/t/put", b"put")]:
            until = time.monotonic() + 30
            while True:
                try:
                    assert bytes(consumer.fetch(name).wait()) == content
                    break
                except weir.WeirError:
                    # The prefix is registered a moment later.
                    assert time.monotonic() < until
                    time.sleep(0.1)
    stop(process)


BUSY = """
import asyncio, os, signal, sys, threading, weir

stops = threading.Event()
content = os.urandom(1_000_000)
served = weir.put('/t/busy/kept', content, sign='digest', segment_size=500)
producer = weir.Producer('/t/busy/made', sign='digest').bind().wait()
log = producer.publish_live('/t/busy/made/log').wait()
consumer = weir.Consumer(allow_unsigned=True)
source = consumer.source('/t/busy/kept')
fetches = [consumer.fetch('/t/busy/kept')]

def publish():
    while not stops.is_set():
        producer.publish('/t/busy/made/x', bytes(2000)).wait()
        log.append(bytes(2000)).wait()

def get():
    while not stops.is_set():
        assert weir.get('/t/busy/kept', allow_unsigned=True) == content

async def read():
    while not stops.is_set():
        fetches[0] = consumer.fetch('/t/busy/kept')
        async for _ in fetches[0]:
            pass

def refused(what):
    try:
        what()
    except weir.ForkedError:
        return
    os._exit(2)

def child(count):
    # A hanging process is killed.
    signal.alarm(60)
    try:
        fetch = fetches[0]
        fetch.close()
        refused(lambda: fetch.wait())
        refused(lambda: fetch.is_verified)
        refused(lambda: served.lost)
        refused(lambda: producer.publish('/t/busy/made/y', b'y').wait())
        refused(lambda: producer.request().wait(0))
        refused(lambda: log.append(b'y').wait())
        for one in [served, producer, log]:
            one.close()
        if count % 20 == 0:
            assert source.stream().whole() == content
            with weir.Producer('/t/busy/child', sign='digest') as own:
                own.publish('/t/busy/child/x', b'x').wait()
                assert weir.get('/t/busy/child/x', allow_unsigned=True) == b'x'
            with weir.put('/t/busy/put', b'put', sign='digest'):
                assert weir.get('/t/busy/put', allow_unsigned=True) == b'put'
        # The others exit normally.
        if count % 2 == 0:
            os._exit(0)
    except Exception as error:
        print(type(error), error, file=sys.stderr)
        os._exit(3)
    sys.exit(0)

threads = [threading.Thread(target=publish), threading.Thread(target=get)]
threads += [threading.Thread(target=asyncio.run, args=[read()])]
for thread in threads:
    thread.start()
try:
    for count in range(COUNT):
        process = os.fork()
        if process == 0:
            threads = []
            child(count)
        status = os.waitpid(process, 0)[1]
        assert status == 0, (count, status)
finally:
    if process:
        stops.set()
        for thread in threads:
            thread.join()
        log.close()
assert weir.get('/t/busy/kept', allow_unsigned=True) == content
print('all is well')
"""


def test_no_child_hangs_however_busy_the_threads_of_its_parent_are():
    output, errors, status = program(BUSY.replace("COUNT", "200"), limit=300)
    assert output == "all is well\n" and status == 0, (status, errors)
