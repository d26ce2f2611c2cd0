"""Servers of the measures: nginx, Varnish, Apache Traffic Server and `weir gateway`.

Each server is a child process with a configuration and files of its own in a fresh folder, and
listens on loopback. `CACHES` names the functions that start a cache in front of origins.
"""

import ctypes
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

PACKAGES = {
    "nginx": "nginx-light",
    "varnishd": "varnish",
    "traffic_server": "trafficserver",
    "wrk": "wrk",
    "curl": "curl",
    "node": "nodejs",
    "npm": "npm",
    "go": "golang",
    "openssl": "openssl",
}
READY_S = 30
STOP_S = 10
POLL_S = 0.05
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MEGABYTE = 1 << 20
# Idle connections stay open this long, so that no server closes them during a measurement.
IDLE_S = 600
CONNECTIONS_MAX = 16384


class Missing(Exception):
    """A program is not installed; the text names its package."""


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Missing(f"{program} is not installed; install {PACKAGES[program]}")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def end_with_parent():
    """Runs in a child process: the kernel kills it when this process ends for any reason."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def write(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    return path


def process_tree(root):
    """Returns the process `root` and its descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except (OSError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry))
    found, pending = [], [root]
    while pending:
        process = pending.pop()
        found.append(process)
        pending.extend(children.get(process, []))
    return found


class Server:
    """Processes that serve one port. Used as a context manager."""

    def __init__(self, name, folder, port):
        self.name = name
        self.folder = folder
        self.port = port
        self.has_tls = False
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, *command, environment=None):
        log = os.path.join(self.folder, f"{len(self.processes)}.log")
        with open(log, "w") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=end_with_parent,
            )
        self.processes.append(process)
        return self

    def log(self):
        """The output of the newest process."""
        path = os.path.join(self.folder, f"{len(self.processes) - 1}.log")
        with open(path, errors="replace") as output:
            return output.read()

    def wait_until(self, is_ready):
        """Waits until `is_ready`, and fails with the log of the newest process if it ends."""
        end = time.monotonic() + READY_S
        while not is_ready():
            if self.processes[-1].poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} does not start: {self.log().strip()}")
            time.sleep(POLL_S)
        return self

    def wait_for_port(self):
        def connects():
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                return False
            return True

        return self.wait_until(connects)

    def connection(self, timeout):
        """A connection that accepts the certificate of this measurement."""
        if not self.has_tls:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=context)

    def wait_for_page(self, path="/"):
        """Waits until the server gets a response of its origin."""

        def responds():
            try:
                connection = self.connection(timeout=2)
                connection.request("GET", path)
                return connection.getresponse().status < 500
            except (OSError, http.client.HTTPException):
                return False

        return self.wait_until(responds)

    def tree(self):
        return [pid for process in self.processes for pid in process_tree(process.pid)]

    def processor_s(self):
        """User and system time of all processes of the server."""
        ticks = 0
        for process in self.tree():
            try:
                with open(f"/proc/{process}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
            except (OSError, ProcessLookupError):
                continue
        return ticks / TICKS_PER_S

    def memory_bytes(self):
        """Memory of all processes. Pages that several share count once (PSS)."""
        kilobytes = 0
        for process in self.tree():
            try:
                with open(f"/proc/{process}/smaps_rollup") as rollup:
                    kilobytes += int(re.search(r"^Pss: +(\d+)", rollup.read(), re.M)[1])
            except (OSError, ProcessLookupError, TypeError):
                continue
        return kilobytes * 1024

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = []
        shutil.rmtree(self.folder, ignore_errors=True)


NGINX = """
daemon off;
USER
worker_processes WORKERS;
worker_rlimit_nofile 20000;
pid DIR/nginx.pid;
error_log DIR/error.log;
events { worker_connections 16384; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 600;
    keepalive_requests 1000000000;
    client_body_temp_path DIR/body;
    proxy_temp_path DIR/proxy;
    fastcgi_temp_path DIR/fastcgi;
    uwsgi_temp_path DIR/uwsgi;
    scgi_temp_path DIR/scgi;
    HTTP
}
"""


def nginx(name, folder, port, http, workers):
    need("nginx")
    text = NGINX.replace("HTTP", http).replace("DIR", folder).replace("WORKERS", str(workers))
    # Workers of another user could not read the folder.
    text = text.replace("USER", "user root;" if os.getuid() == 0 else "")
    configuration = write(folder, "nginx.conf", text)
    server = Server(name, folder, port)
    return server.start("nginx", "-p", folder, "-c", configuration).wait_for_port()


def nginx_origin(folder, www, port=None, name="origin"):
    """Serves the files of `www`. Each other path is the file `object`."""
    port = port or free_port()
    http = f"""
    default_type application/octet-stream;
    server {{
        listen 127.0.0.1:{port};
        root {www};
        expires 1h;
        location / {{ try_files $uri /object =404; }}
    }}
    """
    return nginx(name, folder, port, http, workers=1)


def nginx_cache(folder, origins, options):
    port = free_port()
    size = options.get("disk_megabytes", 1024)
    upstreams, locations = [], []
    for number, (prefix, address) in enumerate(origins):
        upstreams.append(f"upstream origin{number} {{ server {address}; keepalive 64; }}")
        locations.append(f"location {prefix} {{ proxy_pass http://origin{number}; }}")
    listen = f"listen 127.0.0.1:{port};"
    if options.get("tls"):
        listen = f"listen 127.0.0.1:{port} ssl http2; "
        listen += "ssl_certificate {}; ssl_certificate_key {};".format(*options["tls"])
    http = f"""
    proxy_cache_path DIR/cache levels=1:2 keys_zone=cache:16m max_size={size}m inactive=1h
        use_temp_path=off;
    {" ".join(upstreams)}
    server {{
        {listen}
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_cache cache;
        proxy_cache_revalidate on;
        proxy_max_temp_file_size {size}m;
        {" ".join(locations)}
    }}
    """
    return nginx("nginx", folder, port, http, workers=2)


def varnish(folder, origins, options):
    need("varnishd")
    port = free_port()
    backends, choices = [], []
    for number, (prefix, address) in enumerate(origins):
        host, _, origin_port = address.partition(":")
        backends.append(
            f'backend origin{number} {{ .host = "{host}"; .port = "{origin_port}"; }}'
        )
        choices.append(
            f'if (req.url ~ "^{prefix}") {{ set req.backend_hint = origin{number}; }}'
        )
    lines = ["vcl 4.1;", *backends, "sub vcl_recv {", *choices, "}"]
    vcl = write(folder, "default.vcl", "\n".join(lines))
    storage = f"malloc,{options.get('memory_megabytes', 256)}m"
    if "disk_megabytes" in options:
        storage = f"file,{folder}/storage,{options['disk_megabytes']}m"
    settings = {"timeout_idle": IDLE_S, **options.get("varnish", {})}
    settings = [word for item in settings.items() for word in ("-p", "{}={}".format(*item))]
    server = Server("Varnish", folder, port)
    server.start(
        "varnishd", "-F", "-j", "none", "-n", f"{folder}/work", "-f", vcl,
        "-a", f"127.0.0.1:{port}", "-T", "none", "-s", storage, *settings,
    )  # fmt: skip
    return server.wait_for_port()


RUNROOT = """
prefix: DIR
exec_prefix: /usr
bindir: /usr/bin
sbindir: /usr/bin
sysconfdir: DIR/etc
datadir: DIR
includedir: /usr/include
libdir: /usr/lib/trafficserver
libexecdir: /usr/lib/trafficserver/modules
localstatedir: DIR/run
runtimedir: DIR/run
logdir: DIR/log
cachedir: DIR/cache
"""

RECORDS = """
CONFIG proxy.config.http.server_ports STRING PORT:ip-in=127.0.0.1TLS
CONFIG proxy.config.ssl.server.cert.path STRING DIR
CONFIG proxy.config.ssl.server.private_key.path STRING DIR
CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.cache.ram_cache.size INT MEMORY
CONFIG proxy.config.url_remap.pristine_host_hdr INT 1
CONFIG proxy.config.net.connections_throttle INT CONNECTIONS
CONFIG proxy.config.net.max_connections_in INT CONNECTIONS
CONFIG proxy.config.http.keep_alive_no_activity_timeout_in INT IDLE
"""

IP_ALLOW = """
ip_allow:
  - apply: in
    ip_addrs: 0/0
    action: allow
    methods: ALL
"""


def traffic_server(folder, origins, options):
    need("traffic_server")
    port = free_port()
    for name in ("cache", "run", "log"):
        os.makedirs(f"{folder}/{name}")
    tls = options.get("tls")
    if tls:
        for path in tls:
            shutil.copy(path, folder)
        names = [os.path.basename(path) for path in tls]
        rule = "dest_ip=* ssl_cert_name={} ssl_key_name={}\n".format(*names)
        write(folder, "etc/ssl_multicert.config", rule)
    memory_bytes = options.get("memory_megabytes", 256) * MEGABYTE
    records = RECORDS.replace("PORT", str(port)).replace("MEMORY", str(memory_bytes))
    records = records.replace("CONNECTIONS", str(CONNECTIONS_MAX)).replace("IDLE", str(IDLE_S))
    records = records.replace("TLS", ":ssl" if tls else "").replace("DIR", folder)
    write(folder, "etc/records.config", records)
    size = options.get("disk_megabytes", 1024)
    write(folder, "etc/storage.config", f"{folder}/cache {size}M\n")
    rules = [
        f"map {prefix} http://{address}{prefix}" for prefix, address in reversed(origins)
    ]
    write(folder, "etc/remap.config", "\n".join(rules) + "\n")
    write(folder, "etc/ip_allow.yaml", IP_ALLOW)
    write(folder, "etc/plugin.config", "")
    runroot = write(folder, "runroot.yaml", RUNROOT.replace("DIR", folder))
    server = Server("ATS", folder, port).start("traffic_server", f"--run-root={runroot}")
    server.has_tls = bool(tls)
    return server.wait_for_port().wait_for_page()


ROUTER = """
[[disk]]
path = "DIR/disk"
size = "DISKMiB"
"""

FRONT = """
router = "unix://DIR/router.sock"

[front]
listen = ["127.0.0.1:PORT"]
memory = "MEMORYMiB"
client_timeout = "IDLEs"
UPLOADS

[[front.host]]
prefix = "/web"
query = true
vary = VARY
"""

FRONT_TLS = """
[front.tls]
certificate = "{}"
key = "{}"
"""

ORIGIN = """
[[origin]]
prefix = "PREFIX"
url = "URL"
buffer = "MEMORYMiB"
vary = VARY
METHODS
"""


def weir(folder, origins, options):
    """A router, the origins and the front: one process each."""
    program = options["weir"]
    if not os.access(program, os.X_OK):
        raise Missing(f"{program} does not exist; build it or set --weir")
    port = free_port()
    memory = str(options.get("memory_megabytes", 256))
    has_uploads, tls = options.get("uploads"), options.get("tls")
    disk, vary = options.get("disk_megabytes"), json.dumps(options.get("vary", []))
    router = ROUTER.replace("DIR", folder).replace("DISK", str(disk)) if disk else ""
    front = FRONT.replace("PORT", str(port)).replace("IDLE", str(IDLE_S))
    front = front.replace("UPLOADS", 'uploads = "/uploads"' if has_uploads else "")
    front += FRONT_TLS.format(*tls) if tls else ""
    origin = 'router = "unix://DIR/router.sock"\n'
    for prefix, address in origins:
        name, url = f"/web{prefix}".rstrip("/"), f"http://{address}{prefix}"
        origin += ORIGIN.replace("PREFIX", name).replace("URL", url)
    methods = 'methods = ["PUT", "POST", "DELETE"]'
    origin = origin.replace("METHODS", methods if has_uploads else "")
    front, origin = (
        text.replace("DIR", folder).replace("MEMORY", memory).replace("VARY", vary)
        for text in (front, origin)
    )
    server = Server("Weir", folder, port)
    server.has_tls = bool(tls)
    environment = {"HOME": folder}
    socket_path = f"{folder}/router.sock"
    server.start(
        program, "router", "-c", write(folder, "weir.toml", router), "--unix", socket_path,
        "--udp", "none", "--tcp", "none", "--store", f"{memory}MiB", environment=environment,
    )  # fmt: skip
    server.wait_until(lambda: os.path.exists(socket_path))
    # The origin makes the key that the front trusts.
    for name, text in (("origin", origin), ("front", front)):
        configuration = write(folder, f"{name}.toml", text)
        server.start(program, "gateway", "run", "-c", configuration, environment=environment)
        server.wait_until(lambda: "ready" in server.log())
    return server.wait_for_page()


CACHES = {"nginx": nginx_cache, "varnish": varnish, "ats": traffic_server, "weir": weir}


class StalledOrigin:
    """Accepts connections and reads requests, but never responds."""

    def __init__(self, port):
        self.listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self.accepted = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                self.accepted.append(self.listener.accept()[0])
            except OSError:
                return

    def stop(self):
        # Wakes the thread that accepts, which `close` alone does not.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.accepted:
            connection.close()
