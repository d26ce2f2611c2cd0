"""A live television channel and a film, served by nginx on loopback.

    channel.py PORT [--heights 360 180]

`http://127.0.0.1:PORT/tv/c1/master.m3u8` is live, `/vod/master.m3u8` is a film of 30 seconds, and
every other file in the folder `www` is served as it is. The program prints one line of JSON with
the URL and the folder when players can start. It runs until SIGTERM or SIGINT, then it ends its
children and removes its folder.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEGMENT_S = 2
FILM_S = 30
FRAMES_PER_S = 25
# Bits per second of the picture, by height.
RATES = {180: 300_000, 360: 800_000, 720: 3_000_000, 1080: 6_000_000}
# A player starts three segments behind the end of the playlist.
READY_SEGMENTS = 3
POLL_INTERVAL_S = 0.05
# The kernel sends this signal to the children if this program is killed.
TIED = ["setpriv", "--pdeathsig", "TERM"]

NGINX = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-errors.log;
events {{ }}
http {{
    access_log {folder}/nginx-access.log;
    client_body_temp_path {folder}/temporary;
    proxy_temp_path {folder}/temporary;
    fastcgi_temp_path {folder}/temporary;
    uwsgi_temp_path {folder}/temporary;
    scgi_temp_path {folder}/temporary;
    types {{
        application/vnd.apple.mpegurl m3u8;
        video/mp2t ts;
    }}
    default_type application/octet-stream;
    map $uri $lifetime {{
        ~\\.m3u8$ max-age=1;
        default max-age=3600;
    }}
    server {{
        listen 127.0.0.1:{port};
        root {folder}/www;
        add_header Access-Control-Allow-Origin * always;
        add_header Cache-Control $lifetime;
    }}
}}
"""


def ffmpeg(folder, heights, source, playlists):
    """The command that encodes a test picture in several qualities into a folder."""
    folder.mkdir(parents=True)
    top = max(heights)
    outputs = "".join(f"[s{height}]" for height in heights)
    scales = (f"[s{h}]scale={h * 16 // 9}:{h}[v{h}]" for h in heights)
    picture = f"testsrc2=size={top * 16 // 9}x{top}:rate={FRAMES_PER_S}"
    group = str(SEGMENT_S * FRAMES_PER_S)
    words = ["ffmpeg", "-hide_banner", "-loglevel", "warning", "-nostdin"]
    for lavfi in (picture, "sine=frequency=440:sample_rate=48000"):
        words += [*source, "-f", "lavfi", "-i", lavfi]
    words += ["-filter_complex", ";".join([f"[0:v]split={len(heights)}{outputs}", *scales])]
    for place, height in enumerate(heights):
        rate = str(RATES[height])
        words += ["-map", f"[v{height}]", "-map", "1:a"]
        words += [f"-b:v:{place}", rate, f"-maxrate:v:{place}", rate, f"-bufsize:v:{place}", rate]
    # Every segment starts with a key frame, at the same time in each quality.
    words += ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", group]
    words += ["-keyint_min", group, "-sc_threshold", "0", "-c:a", "aac", "-b:a", "64k"]
    variants = (f"v:{place},a:{place},name:{height}p" for place, height in enumerate(heights))
    words += ["-f", "hls", "-hls_time", str(SEGMENT_S), *playlists]
    words += ["-master_pl_name", "master.m3u8", "-var_stream_map", " ".join(variants)]
    words += ["-hls_segment_filename", str(folder / "%v/%d.ts")]
    return [*words, str(folder / "%v/index.m3u8")]


def film(folder, heights):
    flags = ["-t", str(FILM_S), "-hls_playlist_type", "vod"]
    subprocess.run(ffmpeg(folder, heights, [], flags), check=True)


def live(folder, heights):
    flags = ["-hls_list_size", "5", "-hls_flags"]
    flags += ["delete_segments+program_date_time+independent_segments+temp_file"]
    return subprocess.Popen([*TIED, *ffmpeg(folder, heights, ["-re"], flags)])


def nginx(folder, port):
    (folder / "temporary").mkdir()
    configuration = folder / "nginx.conf"
    configuration.write_text(NGINX.format(folder=folder, port=port))
    return subprocess.Popen([*TIED, "nginx", "-p", str(folder), "-c", str(configuration)])


def is_ready(folder, heights):
    playlists = [folder / f"{height}p/index.m3u8" for height in heights]
    return all(
        path.exists() and path.read_text().count("#EXTINF") >= READY_SEGMENTS for path in playlists
    )


def ended(children):
    return next((child for child in children if child.poll() is not None), None)


def run(folder, port, heights):
    film(folder / "www/vod", heights)
    children = []
    try:
        children.append(nginx(folder, port))
        channel = folder / "www/tv/c1"
        children.append(live(channel, heights))
        is_announced = False
        while (child := ended(children)) is None:
            if not is_announced and is_ready(channel, heights):
                url = f"http://127.0.0.1:{port}"
                print(json.dumps({"url": url, "folder": str(folder / "www")}), flush=True)
                is_announced = True
            time.sleep(POLL_INTERVAL_S)
        sys.exit(f"{child.args} ended with {child.returncode}")
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--heights", type=int, nargs="+", choices=RATES, default=[360, 180])
    arguments = parser.parse_args()
    # SIGTERM raises SystemExit, so the folder is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    folder = Path(tempfile.mkdtemp(prefix="weir-channel-"))
    try:
        run(folder, arguments.port, arguments.heights)
    finally:
        shutil.rmtree(folder)


main()
