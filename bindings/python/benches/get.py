"""Compares `weir.get` into memory with `weir get` into /dev/null, in pairs.

python get.py [MIB [PAIRS [WEIR]]], with `weir router` running and the wheel installed. `weir.put`
publishes the object, and it is fetched once before the measurement. Each measurement starts the
program again; the time to fetch one byte is subtracted.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

import weir


def main() -> None:
    given = sys.argv[1:] + ["300", "7", "weir"][len(sys.argv) - 1 :]
    size, pairs, program = int(given[0]) << 20, int(given[1]), given[2]

    def command(name: str) -> float:
        start = time.perf_counter()
        with open(os.devnull, "wb") as null:
            words = [program, "get", name, "-o", "-"]
            subprocess.run(words, check=True, stdout=null, stderr=subprocess.DEVNULL)
        return time.perf_counter() - start

    def python(name: str) -> float:
        start = time.perf_counter()
        got = weir.get(name)
        took = time.perf_counter() - start
        assert len(got) == size
        return took

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "object")
        with open(path, "wb") as file:
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 20))
        with weir.put("/bench/object", path), weir.put("/bench/octet", b"x"):
            for warm in (command, python):
                warm("/bench/object")
            start = statistics.median(command("/bench/octet") for _ in range(5))
            ratios = []
            for pair in range(pairs):
                # Each is first every other time.
                order = (command, python) if pair % 2 else (python, command)
                took = {run: run("/bench/object") for run in order}
                took[command] -= start
                ratios.append(took[python] / took[command])
                rates = [size / took[run] / 1e6 for run in (python, command)]
                print(f"weir.get {rates[0]:7.0f} MB/s   weir get {rates[1]:7.0f} MB/s", flush=True)
            print(f"time of weir.get to that of weir get, median: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
