#!/usr/bin/env python3
"""Path labels of hICN, where two routers lead to one producer.

    labels.py --weir target/release/weir [--get WEIR ...] [--runs 5]

The consumer's router spreads Interests over a near and a far router with the strategy multipath.
Each is behind an emulated link. All Data comes from the producer. Fetches of each program in --get
alternate, with each controller. Prints medians. The program in --weir has the laboratory
(`--features weir/lab`); the others may be builds of another state of the source.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

PREFIX = "/32=hicn/8=%20%01/8=%0D%B8/8=%00%07"
MAPPING = "hicn:2001:db8:7::/48"
COUNTERS = ("losses", "false_losses", "retransmissions", "decreases", "timeouts")
WAIT_S = 60


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", required=True, help="the program of routers, producer and links")
    parser.add_argument("--get", nargs="+", help="programs that fetch [default: that of --weir]")
    parser.add_argument("--near", default="--rate 10Mbit --delay 5ms", help="options of its link")
    parser.add_argument("--far", default="--rate 20Mbit --delay 40ms", help="options of its link")
    parser.add_argument("--weight", type=int, default=16, help="share of the far path in flight")
    parser.add_argument("--octets", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120, help="seconds of a fetch")
    parser.add_argument("--controllers", nargs="+", default=["cubic", "ledbat", "weir"])
    options = parser.parse_args()
    options.weir = os.path.abspath(options.weir)
    options.get = [os.path.abspath(program) for program in options.get or [options.weir]]
    return options


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(what, is_so):
    end = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"timed out: {what}")
        time.sleep(0.05)


class Network:
    """The routers, links and the producer, in a folder of their own."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.processes = []
        self.environment = dict(os.environ, HOME=str(folder), WEIR_HOME=str(folder / "weir"))
        self.environment["XDG_RUNTIME_DIR"] = str(folder)

    def start(self):
        options, folder = self.options, self.folder
        (folder / "source").write_bytes(os.urandom(options.octets))
        origin = self.router("origin", [])
        links = []
        for name, link in (("near", options.near), ("far", options.far)):
            links.append(self.link(self.router(name, [origin]), link.split()))
        self.router("here", links)
        faces = json.loads(self.weir("here", ["face", "list", "--json"]))
        (far,) = [face["face_id"] for face in faces if face["uri"] == links[1]]
        strategy = f"/localhost/nfd/strategy/multipath/v=1/weight~{far}:{options.weight}"
        self.weir("here", ["strategy", "set", PREFIX, strategy])
        put = ["put", "source", "/file", "--mapping", MAPPING, "--signature-format", "hicn"]
        shown = folder / "put"
        self.spawn("origin", put, shown)
        wait_for("the file is published", lambda: "serving" in shown.read_text())

    def at(self, router):
        return dict(self.environment, NDN_CLIENT_TRANSPORT=f"unix://{self.folder}/{router}")

    def spawn(self, router, words, output):
        with open(output, "w") as out:
            command = [self.options.weir, *words]
            process = subprocess.Popen(
                command, env=self.at(router), cwd=self.folder, stdout=out, stderr=out
            )
        self.processes.append(process)

    def weir(self, router, words, program=None):
        command = [program or self.options.weir, *words]
        done = subprocess.run(
            command, env=self.at(router), cwd=self.folder, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{command}: {done.stderr}")
        return done.stdout

    def router(self, name, next_hops):
        """Starts a router. Returns the URI of its port for hICN packets."""
        port, other = free_port(), f"127.0.0.1:{free_port()}"
        config = f'[faces]\nhicn_udp = ["127.0.0.1:{port}"]\n[store]\nadmit = false\n'
        for uri in next_hops:
            config += f'[[face]]\nuri = "{uri}"\nroutes = ["{PREFIX}"]\n'
        (self.folder / f"{name}.toml").write_text(config)
        words = ["router", "--config", f"{name}.toml", "--unix", name, "--udp", other, "--tcp"]
        self.spawn(name, [*words, other], self.folder / f"{name}.log")

        def has_routes():
            command = [self.options.weir, "route", "list"]
            done = subprocess.run(command, env=self.at(name), capture_output=True, text=True)
            return done.returncode == 0 and done.stdout.count("hicn+udp4") >= len(next_hops)

        wait_for(f"{name} runs", has_routes)
        return f"hicn+udp4://127.0.0.1:{port}"

    def link(self, uri, link):
        """Starts a link to a router. Returns its URI for the other side."""
        near = f"127.0.0.1:{free_port()}"
        peer = uri.removeprefix("hicn+udp4://")
        log = self.folder / f"link-{len(self.processes)}"
        words = ["link", "--a", near, "--b", "127.0.0.1:0", "--peer-b", peer, *link]
        self.spawn("none", words, log)
        wait_for("the link runs", lambda: "link between" in log.read_text())
        return f"hicn+udp4://{near}"

    def fetch(self, program, controller):
        """The summary of a fetch; None if it takes longer than the limit."""
        with tempfile.TemporaryDirectory(dir=self.folder) as out:
            return self.fetch_to(pathlib.Path(out) / "file", program, controller)

    def fetch_to(self, out, program, controller):
        command = [program, "get", "/file", "-o", str(out), "--mapping", MAPPING, "--json"]
        command += ["--pipeline", controller]
        process = subprocess.Popen(
            command,
            env=self.at("here"),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            shown, _ = process.communicate(timeout=self.options.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None
        if process.returncode or out.read_bytes() != (self.folder / "source").read_bytes():
            raise SystemExit(f"{program} did not fetch the file")
        return json.loads(shown)

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait()


def main():
    options = arguments()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-labels"))
    network = None
    try:
        network = Network(options, folder)
        network.start()
        results = {}
        for _ in range(options.runs):
            for controller in options.controllers:
                for number, program in enumerate(options.get):
                    summary = network.fetch(program, controller)
                    results.setdefault((controller, number), []).append(summary)
        for (controller, number), summaries in results.items():
            ended = [summary for summary in summaries if summary]
            print(f"{controller}, program {number}: {len(ended)} of {len(summaries)} in time")
            goodputs = [s["bytes"] * 8e-6 / s["seconds"] if s else 0 for s in summaries]
            print(f"  goodput {statistics.median(goodputs):.2f} Mbit/s of", end=" ")
            print(" ".join(f"{goodput:.2f}" for goodput in goodputs))
            for counter in COUNTERS:
                if ended:
                    print(f"  {counter} {statistics.median(s[counter] for s in ended):.0f}", end="")
            print()
            for stats in ended[-1]["routers"][0]["labels"] if ended else []:
                print(f"  label {stats['label']}: {stats['answers']} answers", end=", ")
                print(f"{stats['rtt_smoothed_ms']:.1f} ms")
    finally:
        if network:
            network.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
