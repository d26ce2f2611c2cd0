"""Compares a player on two servers of the same channel, such as the gateway and plain nginx.

    compare.py hls|shaka URL OTHER [--pairs 20] [--seconds 600]

URL and OTHER are master playlists. Two players start at the same time, one on each, so both join
at the same point of a segment. Short pairs measure the start and the distance to live. A last pair
plays for a long time and measures stalls. The program prints one line of JSON for each pair, and a
summary with the ratio of the starts and the mean difference of the distances.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

PLAY = Path(__file__).with_name("play.mjs")
# Time for two browsers to open their pages.
BROWSER_S = 8
# Long enough for a start and a stable distance to live.
SHORT_S = 8


def pair(player, urls, seconds):
    options = ["--seconds", str(seconds), "--at", str(round((time.time() + BROWSER_S) * 1000))]
    commands = [["node", PLAY, player, url, *options] for url in urls]
    players = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for line in commands]
    reports = [json.loads(one.communicate()[0]) for one in players]
    print(json.dumps(reports), flush=True)
    if not all(report["played"] for report in reports):
        sys.exit("a player did not play")
    return reports


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("player")
    parser.add_argument("urls", nargs=2)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=600)
    arguments = parser.parse_args()
    pairs = [pair(arguments.player, arguments.urls, SHORT_S) for _ in range(arguments.pairs)]
    starts = [statistics.median(one[at]["startup_s"] for one in pairs) for at in (0, 1)]
    behind = [a["latency_median_s"] - b["latency_median_s"] for a, b in pairs]
    long = pair(arguments.player, arguments.urls, arguments.seconds)
    print(json.dumps({
        "player": arguments.player,
        "startup_median_s": starts,
        "startup_ratio": round(starts[0] / starts[1], 3),
        "behind_mean_s": round(statistics.mean(behind), 3),
        "behind_error_s": round(statistics.stdev(behind) / len(behind) ** 0.5, 3),
        "stalls": [report["stalls"] for report in long],
        "stalled_s": [report["stalled_s"] for report in long],
        "dropped_frames": [report["dropped_frames"] for report in long],
    }))


main()
