"""Copies a live channel and a film with ffmpeg, and compares every packet with the source.

    remux.py URL FOLDER

URL and FOLDER are those that `channel.py` prints, or URL is another server of that folder. The
program prints one line of JSON. It fails if a packet is missing, changed or out of order.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

LIVE_S = 12
# The format of ffmpeg with a line for each packet: stream, times, duration, size and hash.
HASHES = ["-c", "copy", "-f", "framemd5", "-"]


def packets(source, options=()):
    """The size and hash of each packet that `ffmpeg -c copy` writes, by stream."""
    command = ["ffmpeg", "-hide_banner", "-loglevel", "error", "-nostdin", "-i", source]
    finished = subprocess.run([*command, *options, *HASHES], capture_output=True, text=True)
    if finished.returncode != 0 or finished.stderr:
        sys.exit(f"{source}: ffmpeg ended with {finished.returncode}:\n{finished.stderr}")
    streams = {}
    for line in finished.stdout.splitlines():
        if not line.startswith("#"):
            fields = [field.strip() for field in line.split(",")]
            streams.setdefault(fields[0], []).append(tuple(fields[4:]))
    return streams


def is_run_of(part, whole):
    """Whether the packets of `part` follow each other in `whole` without a gap."""
    starts = (at for at, packet in enumerate(whole) if packet == part[0])
    return any(whole[at : at + len(part)] == part for at in starts)


def compare(what, copied, source, is_same):
    for stream in ("0", "1"):
        if not copied.get(stream) or not is_same(copied[stream], source[stream]):
            sys.exit(f"{what}: stream {stream} of the copy differs from the source")
    return {stream: len(packets) for stream, packets in copied.items()}


def keep(segments, folder):
    """Links the segments into a folder, as the channel deletes old ones."""
    for segment in segments:
        kept = folder / segment.name
        if not kept.exists():
            with contextlib.suppress(FileNotFoundError):
                kept.hardlink_to(segment)


def live(url, channel):
    # ffmpeg takes the largest picture of a master playlist.
    largest = max(channel.glob("*p"), key=lambda folder: int(folder.name.removesuffix("p")))
    with tempfile.TemporaryDirectory(dir=channel.parent) as kept:
        kept = Path(kept)
        keep(largest.glob("*.ts"), kept)
        copied = packets(f"{url}/tv/c1/master.m3u8", ["-t", str(LIVE_S)])
        keep(largest.glob("*.ts"), kept)
        segments = sorted(kept.iterdir(), key=lambda path: int(path.stem))
        source = packets("concat:" + "|".join(str(path) for path in segments))
    return compare("live", copied, source, is_run_of)


def film(url, folder):
    source = packets(str(folder / "vod/master.m3u8"))
    return compare("film", packets(f"{url}/vod/master.m3u8"), source, list.__eq__)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    print(json.dumps({
        "film_packets": film(arguments.url, arguments.folder),
        "live_packets": live(arguments.url, arguments.folder / "tv/c1"),
    }))


main()
