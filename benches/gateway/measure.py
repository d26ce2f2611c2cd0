#!/usr/bin/env python3
"""Measures of `weir gateway` next to nginx, Varnish and Apache Traffic Server (ATS).

    measure.py hot|large|first-byte|stalled|idle|cache-tests|h2spec [--json]

Servers run one after another or next to each other in one run, on loopback and in fresh folders.
Rounds alternate between the servers, and ratios compare medians of one run.
"""

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import random
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

# No compiled files in the source tree.
sys.dont_write_bytecode = True
from servers import CACHES, Missing, StalledOrigin, free_port, need, nginx_origin, write

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHUNK_BYTES = 1 << 20
GB = 1_000_000_000

# Requests paths `/PREFIX0`, `/PREFIX1`, ... in turn and reports in JSON.
WRK = """
local number = START
request = function()
    number = number + 1
    return wrk.format("GET", "PREFIX" .. (number % COUNT))
end
delay = function() return DELAY_MS end
done = function(summary, latency, requests)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.stderr:write(string.format(
        '{"bytes": %d, "us": %d, "requests": %d, "errors": %d, "p50_us": %d, "p99_us": %d}',
        summary.bytes, summary.duration, summary.requests, failed,
        latency:percentile(50), latency:percentile(99)))
end
"""


def make_file(path, size, seed):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    source = random.Random(seed)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for at in range(0, size, CHUNK_BYTES):
            chunk = source.randbytes(min(CHUNK_BYTES, size - at))
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def digest_of(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path)
    response = connection.getresponse()
    digest = hashlib.sha256()
    while chunk := response.read(CHUNK_BYTES):
        digest.update(chunk)
    connection.close()
    return digest.hexdigest()


def check(server, path, digest):
    if digest_of(server.port, path) != digest:
        raise RuntimeError(f"{server.name} sent other bytes for {path}")


def wrk(folder, port, prefix, count, seconds, connections, delay_ms=0, start=0):
    """Requests `prefix` and a number below `count`, without a pause if `delay_ms` is 0."""
    need("wrk")
    script = WRK.replace("PREFIX", prefix).replace("COUNT", str(count))
    script = script.replace("DELAY_MS", str(delay_ms)).replace("START", str(start))
    if not delay_ms:
        script = re.sub(r"^delay = .*$", "", script, flags=re.M)
    path = write(folder, f"{port}.lua", script)
    command = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{seconds}s", "-s", path]
    command += ["--timeout", "10s", f"http://127.0.0.1:{port}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stderr)


class Bench:
    """The fresh folder of one run, and the servers in it."""

    def __init__(self, options):
        self.options = options
        self.stack = contextlib.ExitStack()
        self.folder = tempfile.mkdtemp(prefix="gateway-", dir=options.folder)
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.started = 0

    def fresh(self, name):
        self.started += 1
        path = os.path.join(self.folder, f"{name}{self.started}")
        os.makedirs(path)
        return path

    def origin(self, www, port=None):
        return self.stack.enter_context(nginx_origin(self.fresh("origin"), www, port))

    def start(self, name, origins, **options):
        options = {"weir": self.options.weir, **options}
        return CACHES[name](self.fresh(name), origins, options)

    def caches(self, origins, **options):
        """Starts the chosen caches. Reports those that are not installed as not measured."""
        servers = {}
        for name in self.options.servers:
            try:
                server = self.start(name, origins, **options)
            except Missing as missing:
                print(f"{name} is not measured: {missing}", file=sys.stderr)
                continue
            servers[name] = self.stack.enter_context(server)
        return servers


def median(values):
    return statistics.median(values)


def hot(bench):
    """Rate and processor time of caches that hold all objects in memory."""
    options = bench.options
    www = bench.fresh("www")
    digests = [make_file(f"{www}/o{n}", options.bytes, n) for n in range(options.objects)]
    origin = bench.origin(www)
    servers = {"files": origin, **bench.caches([("/", f"127.0.0.1:{origin.port}")])}
    for server in servers.values():
        for number, digest in enumerate(digests):
            check(server, f"/o{number}", digest)
    rates = {name: [] for name in servers}
    costs = {name: [] for name in servers}
    errors = dict.fromkeys(servers, 0)
    for _ in range(options.rounds):
        for name, server in servers.items():
            before = server.processor_s()
            result = wrk(
                bench.folder, server.port, "/o", options.objects, options.seconds,
                options.connections,
            )  # fmt: skip
            gigabytes = result["bytes"] / GB
            rates[name].append(result["bytes"] / result["us"] / 1000)
            costs[name].append((server.processor_s() - before) / gigabytes)
            errors[name] += result["errors"]
    reference = median(rates["varnish"]) if "varnish" in rates else None
    return [
        {
            "server": name,
            "GB/s": round(median(rates[name]), 3),
            "of Varnish": round(median(rates[name]) / reference, 2) if reference else None,
            "CPU s/GB": round(median(costs[name]), 3),
            "errors": errors[name],
        }
        for name in servers
    ]


def read_with_curl(port, path):
    """Returns the rate of one download in GB/s and the bytes received."""
    need("curl")
    command = ["curl", "-s", "-o", os.devnull, "--noproxy", "*", "-w", "%{json}"]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True
    )
    result = json.loads(done.stdout)
    if done.returncode or result["http_code"] != 200:
        return None, result["size_download"]
    return result["speed_download"] / GB, result["size_download"]


def large(bench):
    """Reads of one file that is larger than the memory of each cache."""
    options = bench.options
    www = bench.fresh("www")
    size = int(options.gigabytes * GB)
    digest = make_file(f"{www}/large", size, 1)
    origin = bench.origin(www)
    origins = [("/", f"127.0.0.1:{origin.port}")]
    settings = {"memory_megabytes": options.memory_megabytes}
    disk = {"disk_megabytes": int(options.gigabytes * 2000)}
    arms = {name: (name, disk) for name in options.servers}
    # These two also work without a disk.
    for name in ("varnish", "weir"):
        if name in arms:
            arms[f"{name}, memory"] = (name, {})
    rates = {arm: {"first": [], "again": []} for arm in arms}
    costs = {arm: {"first": [], "again": []} for arm in arms}
    failures = dict.fromkeys(arms, "")
    memory = dict.fromkeys(arms, 0)
    for number in range(options.rounds):
        for arm, (name, extra) in arms.items():
            try:
                server = bench.start(name, origins, **settings, **extra)
            except Missing as missing:
                failures[arm] = str(missing)
                continue
            with server:
                for read in ("first", "again"):
                    before = server.processor_s()
                    rate, received = read_with_curl(server.port, "/large")
                    costs[arm][read].append((server.processor_s() - before) / size * GB)
                    memory[arm] = max(memory[arm], server.memory_bytes())
                    if rate is None or received != size:
                        failures[arm] = f"{received} of {size} bytes"
                    else:
                        rates[arm][read].append(rate)
                if number == 0 and not failures[arm]:
                    check(server, "/large", digest)
    rows = []
    for arm in arms:
        row = {"server": arm}
        for read, values in rates[arm].items():
            row[f"{read} GB/s"] = round(median(values), 3) if values else None
            row[f"{read} CPU s/GB"] = round(median(costs[arm][read]), 2) if values else None
        row["memory MB"] = memory[arm] // 1_000_000
        row["failure"] = failures[arm]
        rows.append(row)
    return rows


class Client:
    """One HTTP/1.1 connection that measures the time to the first byte."""

    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.connection.settimeout(60)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def first_byte_ms(self, path, size):
        """Requests `path`, and reads its `size` bytes after the head."""
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        begin = time.perf_counter()
        self.connection.sendall(request)
        data = self.connection.recv(65536)
        elapsed_ms = (time.perf_counter() - begin) * 1000
        while b"\r\n\r\n" not in data:
            data += self.more()
        head, _, body = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path}: {head.decode(errors='replace')}")
        chunked = b"transfer-encoding: chunked" in head.lower()
        received = len(body)
        while (not body.endswith(b"0\r\n\r\n")) if chunked else received < size:
            more = self.more()
            received += len(more)
            body = body[-8:] + more
        return elapsed_ms

    def more(self):
        data = self.connection.recv(1 << 18)
        if not data:
            raise RuntimeError("the server closed the connection")
        return data


def first_byte(bench):
    """Time to the first byte of a response that is not in the cache, and of one that is."""
    options = bench.options
    www = bench.fresh("www")
    sizes = {"small": 10_000, "large": options.bytes}
    for kind, size in sizes.items():
        for number in range(options.objects):
            make_file(f"{www}/{kind}{number}", size, number)
    make_file(f"{www}/object", 1000, 0)
    origin = bench.origin(www)
    servers = bench.caches([("/", f"127.0.0.1:{origin.port}")])
    clients = {name: Client(server.port) for name, server in servers.items()}
    times = {}
    for kind, size in sizes.items():
        for state in ("cold", "hot"):
            for number in range(options.objects):
                for name, client in clients.items():
                    elapsed = client.first_byte_ms(f"/{kind}{number}", size)
                    times.setdefault((name, kind, state), []).append(elapsed)
    rows = []
    for name in servers:
        row = {"server": name}
        for kind, size in sizes.items():
            for state in ("cold", "hot"):
                values = times[name, kind, state]
                row[f"{size // 1000} kB {state} ms"] = round(median(values), 2)
                row[f"{size // 1000} kB {state} p99"] = round(percentile(values, 99), 2)
        rows.append(row)
    return rows


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


class Visitors:
    """Clients that request fresh paths of one origin once a second, also if it stalls."""

    def __init__(self, port, prefix, count):
        self.is_over = threading.Event()
        self.threads = [
            threading.Thread(target=self.visit, args=(port, f"{prefix}{number}-"), daemon=True)
            for number in range(count)
        ]
        for thread in self.threads:
            thread.start()

    def visit(self, port, prefix):
        while not self.is_over.is_set():
            end = time.monotonic() + 1
            try:
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.settimeout(1)
                    path = f"{prefix}{time.monotonic_ns()}"
                    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    connection.sendall(request.encode())
                    connection.recv(65536)
            except OSError:
                pass
            self.is_over.wait(max(0, end - time.monotonic()))

    def stop(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def stalled(bench):
    """p99 of nine origins, while the tenth responds and while it stalls."""
    options = bench.options
    www = bench.fresh("www")
    make_file(f"{www}/object", 10_000, 1)
    nine = [bench.origin(www) for _ in range(9)]
    tenth = free_port()
    ports = [server.port for server in nine] + [tenth]
    origins = [("/", f"127.0.0.1:{ports[0]}")]
    origins += [(f"/origin{n}/", f"127.0.0.1:{port}") for n, port in enumerate(ports)]
    servers = bench.caches(origins)
    results = {}
    start = 0
    for _ in range(options.rounds):
        for state in ("responds", "stalls"):
            if state == "stalls":
                origin = StalledOrigin(tenth)
            else:
                origin = nginx_origin(bench.fresh("tenth"), www, tenth)
            for name, server in servers.items():
                visitors = Visitors(server.port, "/origin9/", options.visitors)
                # Requests are outstanding at the tenth origin before the measurement starts.
                time.sleep(1)
                start += 1_000_000
                result = wrk(
                    bench.folder, server.port, '/origin" .. (number % 9) .. "/', 1_000_000_000,
                    options.seconds, 18, delay_ms=60, start=start,
                )  # fmt: skip
                visitors.stop()
                results.setdefault((name, state), []).append(result)
            origin.stop()
    rows = []
    for name in servers:
        row = {"server": name}
        for state in ("responds", "stalls"):
            rounds = results[name, state]
            row[f"p50 ms, {state}"] = median(r["p50_us"] for r in rounds) / 1000
            row[f"p99 ms, {state}"] = median(r["p99_us"] for r in rounds) / 1000
        ratio = row["p99 ms, stalls"] / row["p99 ms, responds"]
        row["ratio of p99"] = round(ratio, 2)
        row["errors"] = sum(
            r["errors"] for state in ("responds", "stalls") for r in results[name, state]
        )
        rows.append(row)
    return rows


def idle(bench):
    """Memory of connections that have received one response and are kept alive."""
    options = bench.options
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < options.count + 100:
        raise RuntimeError(f"the limit of open files is {hard}; raise it with ulimit -n")
    www = bench.fresh("www")
    make_file(f"{www}/object", 1000, 1)
    origin = bench.origin(www)
    rows = []
    for name, server in bench.caches([("/", f"127.0.0.1:{origin.port}")]).items():
        for _ in range(50):
            Client(server.port).first_byte_ms("/object", 1000)
        time.sleep(1)
        before = server.memory_bytes()
        clients = []
        for _ in range(options.count):
            clients.append(Client(server.port))
            clients[-1].first_byte_ms("/object", 1000)
        time.sleep(2)
        after = server.memory_bytes()
        # An idle connection counts if it still serves a request.
        alive = 0
        for client in clients:
            try:
                client.first_byte_ms("/object", 1000)
                alive += 1
            except (OSError, RuntimeError):
                pass
        for client in clients:
            client.connection.close()
        rows.append(
            {
                "server": name,
                "connections": alive,
                "bytes each": round((after - before) / options.count),
                "MB before": round(before / 1e6, 1),
                "MB after": round(after / 1e6, 1),
            }
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return rows


# Request headers that the responses of the tests vary with.
VARYING = ["foo", "bar", "baz", "abc", "accept-language"]

# Prints the kind of each test. `Surrogate-Control` and `CDN-Cache-Control`, which only some caches
# have, are left out.
KINDS = """
import suites from './tests/index.mjs'
const kinds = {}
for (const suite of suites)
  if (suite.id !== 'cdn-cache-control')
    for (const test of suite.tests) kinds[test.id] = test.kind || 'required'
console.log(JSON.stringify(kinds))
"""


def cache_tests_folder(tools):
    """Installs the HTTP cache tests once. Their other dependencies only serve browsers."""
    need("node", "npm")
    folder = os.path.join(tools, "cache-tests")
    package = os.path.join(folder, "node_modules", "http-cache-tests")
    if not os.path.exists(os.path.join(package, "cli.mjs")):
        write(folder, "package.json", '{"private": true}')
        npm = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL}
        subprocess.run(["npm", "install", "--silent", "--no-save", "node-fetch@2.7.0"], **npm)
        subprocess.run(["npm", "pack", "--silent", "http-cache-tests@0.4.5"], **npm)
        os.makedirs(package)
        archive = os.path.join(folder, "http-cache-tests-0.4.5.tgz")
        subprocess.run(
            ["tar", "-xzf", archive, "-C", package, "--strip-components=1"], check=True
        )
    return package


def node(package, script, **variables):
    environment = {**os.environ, **variables}
    command = ["node", "--no-warnings", *script]
    done = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{script[0]} failed: {done.stderr}")
    return done.stdout


def cache_tests(bench):
    """The HTTP cache tests of cache-tests.fyi. A test passes if its result is `true`."""
    package = bench.options.cache_tests or cache_tests_folder(bench.options.tools)
    # The repository has a folder for them, the package has not.
    engine = "test-engine/" if os.path.exists(os.path.join(package, "test-engine")) else ""
    kinds = json.loads(node(package, ["--input-type=module", "-e", KINDS]))
    port = free_port()
    environment = {
        **os.environ,
        "npm_config_protocol": "http",
        "npm_config_port": str(port),
        "npm_config_pidfile": os.path.join(bench.folder, "tests.pid"),
    }
    origin = subprocess.Popen(
        ["node", "--no-warnings", f"{engine}server/server.mjs"],
        cwd=package, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    bench.stack.callback(origin.wait)
    bench.stack.callback(origin.terminate)
    settings = {
        # The settings that the tests use for Varnish.
        "varnish": {"default_ttl": 0, "default_grace": 0, "default_keep": 3600},
        "uploads": True,
        "vary": VARYING,
    }
    rows = []
    for name, server in bench.caches([("/", f"127.0.0.1:{port}")], **settings).items():
        server.wait_for_page()
        base = f"http://127.0.0.1:{server.port}"
        output = node(package, [f"{engine}cli.mjs"], npm_config_base=base, npm_package_config_id="")
        results = json.loads(output)
        if bench.options.details:
            write(bench.options.details, f"{name}.json", output)
        row = {"server": name}
        for kind in ("required", "optimal", "check"):
            ids = [test for test in results if kinds.get(test) == kind]
            passed = sum(results[test] is True for test in ids)
            row[kind] = f"{passed} of {len(ids)}"
        rows.append(row)
    return rows


def h2spec_program(tools):
    need("go")
    program = os.path.join(tools, "h2spec")
    if not os.path.exists(program):
        environment = {**os.environ, "GOBIN": tools}
        subprocess.run(
            ["go", "install", "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"],
            check=True, env=environment,
        )  # fmt: skip
    return program


CERTIFICATE = """
req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost
-addext subjectAltName=DNS:localhost -keyout key.pem -out certificate.pem
""".split()


def h2spec(bench):
    """Conformance with HTTP/2 over TLS. Varnish has no TLS."""
    need("openssl")
    program = h2spec_program(bench.options.tools)
    www = bench.fresh("www")
    make_file(f"{www}/object", 1000, 1)
    origin = bench.origin(www)
    folder = bench.fresh("tls")
    subprocess.run(["openssl", *CERTIFICATE], cwd=folder, check=True, capture_output=True)
    certificate = [f"{folder}/certificate.pem", f"{folder}/key.pem"]
    settings = {"tls": certificate, "varnish": {"feature": "+http2"}}
    rows = []
    for name, server in bench.caches([("/", f"127.0.0.1:{origin.port}")], **settings).items():
        command = [program, "-h", "127.0.0.1", "-p", str(server.port), "-P", "/object"]
        if name != "varnish":
            command += ["--tls", "--insecure"]
        done = subprocess.run(command, capture_output=True, text=True)
        if bench.options.details:
            write(bench.options.details, f"h2spec-{name}.txt", done.stdout)
        found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", done.stdout)
        if not found:
            raise RuntimeError(f"h2spec does not run: {done.stdout}{done.stderr}")
        tests, passed, skipped, failed = map(int, found.groups())
        row = {"server": name, "passed": f"{passed} of {tests}"}
        rows.append({**row, "skipped": skipped, "failed": failed})
    return rows


MEASURES = {
    "hot": hot,
    "large": large,
    "first-byte": first_byte,
    "stalled": stalled,
    "idle": idle,
    "cache-tests": cache_tests,
    "h2spec": h2spec,
}


def table(rows):
    columns = list(rows[0]) if rows else []
    cells = [columns] + [["" if v is None else str(v) for v in row.values()] for row in rows]
    widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--servers", default=",".join(CACHES), help="default: %(default)s")
    parser.add_argument("--weir", default=os.path.join(ROOT, "target/release/weir"))
    parser.add_argument("--folder", help="parent of the fresh folder [default: the system's]")
    parser.add_argument("--tools", default=os.path.join(ROOT, "target/gateway"))
    parser.add_argument("--cache-tests", help="a checkout of github.com/http-tests/cache-tests")
    parser.add_argument("--details", help="write the results of each test into this folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of one round")
    parser.add_argument("--objects", type=int, default=20)
    parser.add_argument("--bytes", type=int, default=1_500_000, help="of one object")
    parser.add_argument("--connections", type=int, default=8, help="of `hot`")
    parser.add_argument("--gigabytes", type=float, default=2, help="of the file of `large`")
    parser.add_argument("--memory-megabytes", type=int, default=256, help="of a cache in `large`")
    parser.add_argument("--visitors", type=int, default=32, help="of the tenth origin")
    parser.add_argument("--count", type=int, default=10_000, help="of idle connections")
    options = parser.parse_args()
    options.servers = options.servers.split(",")
    return options


def main():
    # Includes the folders of daemons.
    os.environ["PATH"] += ":/usr/sbin:/usr/local/sbin:/sbin"
    options = arguments()
    bench = Bench(options)
    with bench.stack:
        rows = MEASURES[options.measure](bench)
    if options.json:
        print(json.dumps({"measure": options.measure, "rows": rows}))
    else:
        table(rows)


if __name__ == "__main__":
    main()
