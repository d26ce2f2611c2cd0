"""Reads columns of a Parquet file with fsspec's HTTP file system.

    columns.py URL FOLDER

The program writes a Parquet file into FOLDER, which URL serves. It reads two of the columns over
HTTP, and compares them with the local file. It prints one line of JSON, and fails if they differ or
if the whole file was downloaded.
"""

import argparse
import json
import os
import random
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.http import HTTPFile

ROWS = 200_000
ROW_GROUP = 20_000
COLUMNS = 20
READ = ["c3", "c17"]
# Bytes that fsspec reads ahead.
BLOCK = 1 << 16
SEED = 40


def write(path):
    drawn = random.Random(SEED)
    columns = {f"c{at}": [drawn.random() for _ in range(ROWS)] for at in range(COLUMNS)}
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=ROW_GROUP, compression="none")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    name = f"files/table-{os.getpid()}.parquet"
    path = arguments.folder / name
    write(path)
    with fsspec.filesystem("http").open(f"{arguments.url}/{name}", block_size=BLOCK) as remote:
        if not isinstance(remote, HTTPFile):
            sys.exit(f"{remote}: the server does not offer ranges")
        table = pq.read_table(remote, columns=READ)
        fetched = remote.cache.total_requested_bytes
    if not table.equals(pq.read_table(path, columns=READ)):
        sys.exit("the columns differ from the local file")
    size = path.stat().st_size
    if not 0 < fetched < size / 4:
        sys.exit(f"{fetched} of {size} bytes were read for {len(READ)} of {COLUMNS} columns")
    print(json.dumps({"rows": table.num_rows, "file_bytes": size, "read_bytes": fetched}))


main()
