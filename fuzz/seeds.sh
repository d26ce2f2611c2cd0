#!/bin/sh
# Fills corpus/<target>/ with the test vectors of weir-wire. Needs python3.
set -eu
cd "$(dirname "$0")"
exec python3 - ../core/wire/tests/vectors <<'PYTHON'
import hashlib, json, pathlib, sys

vectors = pathlib.Path(sys.argv[1])

def seed(target, octets):
    folder = pathlib.Path("corpus") / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(octets).hexdigest()).write_bytes(octets)

def records(file):
    return [json.loads(line) for line in (vectors / file).read_text().splitlines()[1:]]

for file in ("valid.jsonl", "invalid.jsonl", "divergent.jsonl"):
    for record in records(file):
        octets = bytes.fromhex(record["hex"])
        kind = record["expect"].get("as", record["kind"])
        seed(kind, octets)
        seed("frame", octets)
        name = record["expect"].get("nameHex")
        if name:
            wire = bytes.fromhex(name)
            seed("name", wire[2 if wire[1] < 253 else 4:])
        for key in ("name", "nameAlt"):
            if key in record["expect"]:
                seed("name_uri", record["expect"][key].encode())
# LpPackets without fragment: Unavailable, and a field unknown.
for octets in ("6405fd03b8011e", "6405fd03b80100", "6404fd03b800", "6405fd03bc011e"):
    for target in ("lp", "frame"):
        seed(target, bytes.fromhex(octets))
# A run of Interests, one with tokens, and an offer.
runs = (
    "641bfd03bd010b5014051207060801613201070a04010204000c0203e8",
    "642362025437fd03bd010bfd03bf045438543a5010050e07060801613201070a0401020400",
    "640dfd03bc09400a0b0c0d00000000",
)
for octets in map(bytes.fromhex, runs):
    for target in ("lp", "frame"):
        seed(target, octets)
    seed("runs", bytes([len(octets)]) + octets)
for line in pathlib.Path("../core/hicn/tests/vectors/hicn.jsonl").read_text().splitlines():
    seed("hicn", bytes.fromhex(json.loads(line)["hex"]))
for record in records("name-uri.jsonl"):
    seed("name_uri", record["uri"].encode())
PYTHON
