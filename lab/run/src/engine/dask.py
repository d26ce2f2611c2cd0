"""Runs the shares of a sweep on a Dask cluster. Started by `weir lab run --engine dask`.

The first line of the standard input is a JSON object: `name`, and `shares` with `number`, `command`
and `log`. The standard output has a line of JSON for each share that ends: `share`, and
`returncode` or `error`. When the input ends, the shares stop. Dask's own configuration names the
cluster (DASK_SCHEDULER_ADDRESS). Without it, Dask starts workers on this machine.
"""

import json
import os
import signal
import sys
import threading


def run_share(command, log, name):
    """On a worker: runs a share, and returns its exit code; -N if signal N killed it."""
    import subprocess

    from distributed import get_worker

    worker = get_worker()
    processes = worker.__dict__.setdefault("weir_" + name, set())
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    processes.add(process)
    try:
        return process.wait()
    finally:
        processes.discard(process)


def stop_shares(name, dask_worker):
    """On a worker: asks the shares to stop. They keep the records that are complete."""
    for process in list(getattr(dask_worker, "weir_" + name, ())):
        process.terminate()


def report(**values):
    print(json.dumps(values), flush=True)


def main():
    job = json.loads(sys.stdin.readline())
    name = job["name"]
    from distributed import Client, as_completed

    def interrupt_at_end():
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_at_end, daemon=True).start()
    client = Client()
    report(cluster=f"{client.scheduler.address}, {len(client.nthreads())} workers")
    futures = {}
    for share in job["shares"]:
        future = client.submit(
            run_share,
            share["command"],
            share["log"],
            name,
            key=f"{name}-{share['number']}",
            pure=False,
        )
        futures[future.key] = share["number"]
        share["future"] = future
    try:
        for future in as_completed(share["future"] for share in job["shares"]):
            number = futures[future.key]
            if future.status == "finished":
                report(share=number, returncode=future.result())
            else:
                error = future.exception() if future.status == "error" else future.status
                report(share=number, error=f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        client.cancel([share["future"] for share in job["shares"]])
        client.run(stop_shares, name)
        sys.exit(130)
    client.close()
    # The thread that reads the input never ends.
    os._exit(0)


if __name__ == "__main__":
    main()
