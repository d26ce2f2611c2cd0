#!/usr/bin/env python3
"""Comparisons for sockets: TCP with iperf3, HTTPS with nginx and curl.

    comparison.py '{"what": "tcp", "size": 1000000, "mtu": 1500, "offload": true}'
    comparison.py '{"what": "https", "size": 1000000, "transfers": 1}'

Runs in the current directory, which holds its files afterwards. Prints one line of JSON:
{"samples": {"goodput": [...], ...}}, or {"missing": why} where this machine has no such program
or does not allow it. Anything else that goes wrong is an error on standard error and exit code 1.
"""

import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

# Number of attempts to reach a server, and the pause between two.
TRIES = 100
# Bytes generated at once: `randbytes` accepts less than 256 MiB.
CHUNK = 1 << 20
PAUSE_S = 0.03

PACKAGES = {
    "unshare": "util-linux",
    "ip": "iproute2",
    "ethtool": "ethtool",
    "iperf3": "iperf3",
    "nginx": "nginx-light",
    "curl": "curl",
    "openssl": "openssl",
}

# Brings up the loopback interface of a new network namespace, which needs no privileges, and sends
# through it.
IPERF = """
ip link set lo up mtu "$1"
ethtool -K lo tso "$2" gso "$2" gro "$2" >ethtool.log || exit 3
iperf3 --server >iperf-server.log 2>&1 &
tries=0
until iperf3 --client 127.0.0.1 --bytes "$3" --json >iperf.json &&
    ! grep -q '"error"' iperf.json; do
    tries=$((tries + 1))
    [ $tries -lt "$4" ] || break
    sleep "$5"
done
cat iperf.json
"""

# One process that serves DIR/www at PORT and writes only there.
NGINX = """
daemon off;
master_process off;
pid DIR/nginx.pid;
error_log DIR/nginx.log;
events { worker_connections 64; }
http {
    access_log off;
    sendfile on;
    client_body_temp_path DIR/b;
    proxy_temp_path DIR/p;
    fastcgi_temp_path DIR/f;
    uwsgi_temp_path DIR/u;
    scgi_temp_path DIR/s;
    server {
        listen 127.0.0.1:PORT ssl;
        server_name localhost;
        ssl_certificate DIR/certificate.pem;
        ssl_certificate_key DIR/key.pem;
        ssl_protocols TLSv1.3;
        root DIR/www;
    }
}
"""

CERTIFICATE = """
req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost
-addext subjectAltName=DNS:localhost -keyout key.pem -out certificate.pem
""".split()

CURL = """
--silent --show-error --tlsv1.3 --http1.1 --ipv4 --noproxy * --cacert certificate.pem
--output /dev/null --write-out %{json}\\n
""".split()


class Missing(Exception):
    """Something is not installed or not permitted; the text says what to do."""


def need(*names):
    """Raises an error if one of these programs is not installed."""
    missing = [name for name in names if not shutil.which(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        packages = ", ".join(PACKAGES[name] for name in missing)
        raise Missing(f"{', '.join(missing)} {verb} not installed here; install {packages}")


def end_with_parent():
    """Runs in a child process: the kernel kills it when this process ends for any reason."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(*arguments, **options):
    pipes = {"stdout": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(arguments, preexec_fn=end_with_parent, **pipes)


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return {}


def tcp(trial):
    """One transfer over the kernel's TCP with its default congestion control."""
    need("unshare", "ip", "ethtool", "iperf3")
    offload = "on" if trial["offload"] else "off"
    # The processes of the namespace end with the one that created it.
    client = start(
        "unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child",
        "sh", "-c", IPERF, "sh",
        str(trial["mtu"]), offload, str(trial["size"]), str(TRIES), str(PAUSE_S),
        stderr=subprocess.PIPE,
    )  # fmt: skip
    out, errors = client.communicate()
    result = parsed(out)
    try:
        return {"goodput": [result["end"]["sum_received"]["bits_per_second"]]}
    except KeyError:
        why = result.get("error", errors.strip())
        raise Missing(
            f"iperf3 in a network of its own does not work here ({why}); user namespaces, or root, "
            "are needed"
        ) from None


def serve(size):
    """Starts nginx with a file of `size` bytes. Returns its port."""
    os.makedirs("www", exist_ok=True)
    with open("www/content", "wb") as content:
        source = random.Random(1)
        for at in range(0, size, CHUNK):
            content.write(source.randbytes(min(CHUNK, size - at)))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with open("nginx.conf", "w") as configuration:
        configuration.write(NGINX.replace("PORT", str(port)).replace("DIR", os.getcwd()))
    server = start("nginx", "-p", os.getcwd() + "/", "-c", os.path.abspath("nginx.conf"))
    for _ in range(TRIES):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return port
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(PAUSE_S)
    why = "it wrote no log"
    if os.path.exists("nginx.log"):
        with open("nginx.log", errors="replace") as log:
            why = log.read().strip()
    sys.exit(f"nginx does not answer: {why}")


def https(trial):
    """Concurrent transfers over HTTPS: TLS 1.3 with a self-signed server certificate."""
    need("nginx", "curl", "openssl")
    subprocess.run(["openssl", *CERTIFICATE], check=True, stdout=subprocess.DEVNULL)
    url = f"https://localhost:{serve(trial['size'])}/content"
    clients = [start("curl", *CURL, url) for _ in range(trial["transfers"])]
    rates = []
    for client in clients:
        result = parsed(client.communicate()[0])
        if client.returncode or result.get("size_download") != trial["size"]:
            sys.exit(f"curl did not get the file: exit code {client.returncode}")
        rates.append(trial["size"] * 8 / result["time_total"])
    # Jain's index: 1 is fair.
    fairness = sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))
    return {"goodput": [sum(rates)], "fairness": [fairness]}


def main():
    # Includes the folders of daemons.
    os.environ["PATH"] += ":/usr/sbin:/usr/local/sbin:/sbin"
    trial = json.loads(sys.argv[1])
    try:
        answer = {"samples": {"tcp": tcp, "https": https}[trial["what"]](trial)}
    except Missing as missing:
        answer = {"missing": str(missing)}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
