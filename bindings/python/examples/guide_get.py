"""Prints an object: guide_get.py NAME."""

import sys

import weir

if len(sys.argv) != 2:
    sys.exit(__doc__)
name = sys.argv[1]
try:
    consumer = weir.Consumer(name, retries=3)  # trusts the same signers as `weir get`
    for octets in consumer.fetch(name):
        sys.stdout.buffer.write(octets)
except weir.WeirError as error:
    sys.exit(f"guide_get: {error}")
