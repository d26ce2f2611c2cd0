"""Downloads a file with `curl`, breaks the download, and resumes it with `curl -C -`.

    resume.py URL FOLDER

The program writes a random file into FOLDER, which URL serves. It breaks the download several
times, resumes it to the end, and compares the bytes. It prints one line of JSON, and fails if the
copy differs or if the server sent bytes twice.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZE = 32 << 20
# Sizes of the copy at which a download is broken.
BREAKS = [SIZE // 7, SIZE // 3, SIZE * 4 // 5]
RATE_BYTES_PER_S = SIZE // 2
BREAK_LIMIT_S = 60
POLL_INTERVAL_S = 0.01


def curl(url, target, options=()):
    command = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*"]
    command += ["--continue-at", "-", "--output", str(target), *options, url]
    command += ["--write-out", "%{http_code} %{size_download}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def size(path):
    return path.stat().st_size if path.exists() else 0


def broken(url, target, at):
    """A download that is killed when the file has a size."""
    download = curl(url, target, ["--limit-rate", str(RATE_BYTES_PER_S)])
    end = time.monotonic() + BREAK_LIMIT_S
    while size(target) < at:
        if download.poll() is not None:
            sys.exit(f"curl ended with {download.returncode} after {size(target)} bytes")
        if time.monotonic() > end:
            download.kill()
            sys.exit(f"curl has {size(target)} bytes after {BREAK_LIMIT_S} seconds")
        time.sleep(POLL_INTERVAL_S)
    download.kill()
    download.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    content = os.urandom(SIZE)
    name = f"random-{os.getpid()}.bin"
    source = arguments.folder / "files" / name
    source.parent.mkdir(exist_ok=True)
    source.write_bytes(content)
    url = f"{arguments.url}/files/{name}"
    with tempfile.TemporaryDirectory(prefix="weir-resume-") as folder:
        target = Path(folder) / name
        for at in BREAKS:
            broken(url, target, at)
        had = size(target)
        status, downloaded = curl(url, target).communicate()[0].split()
        if (status, int(downloaded)) != ("206", SIZE - had):
            sys.exit(f"status {status}, {downloaded} bytes after {had} of {SIZE}")
        if target.read_bytes() != content:
            sys.exit(f"the copy of {SIZE} bytes differs from the source")
    print(json.dumps({"bytes": SIZE, "breaks": len(BREAKS), "resumed_at": had}))


main()
