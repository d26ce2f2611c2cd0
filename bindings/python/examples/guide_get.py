"""Writes what the name denotes: guide_get.py NAME."""

import sys

import weir

consumer = weir.Consumer(sys.argv[1], retries=3)  # believes whom `weir get` believes
for octets in consumer.fetch(sys.argv[1]):
    sys.stdout.buffer.write(octets)
