#!/bin/sh
# Records what a release leaves on disk, for tests/tests/durability/upgrade.rs.
#
#   tests/upgrade/record.sh WEIR        WEIR is the program of the release, built with its tag
#
# Writes VERSION.tar.gz next to this script: a repository, a disk of a router's store, a key folder,
# an interrupted download and a controller's database.
set -eu
weir=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
version=$("$weir" --version | cut -d' ' -f2)
work=$(mktemp -d)
pids=
stop() {
    for pid in $pids; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    pids=
}
trap 'stop; rm -rf "$work"' EXIT
cd "$work"
mkdir state
export HOME="$work" WEIR_HOME="$work/state/home" NDN_CLIENT_TRANSPORT="unix://$work/router.sock"

wait_for() {
    for _ in $(seq 100); do grep -q "$2" "$1" && return; sleep 0.1; done
    echo "record.sh: no '$2' in $1:" >&2; cat "$1" >&2; exit 1
}

# Bytes that compress and that a test can make again: the numbers from 1.
seq 1 60000 > file
yes weir | head -c 20000000 > large
cat > router.toml <<END
[store]
size = "1MiB"
[disks]
offer = "arrival"
[[disk]]
path = "$work/state/disk"
size = "64MiB"
END
"$weir" router -c router.toml --unix router.sock --udp none --tcp none > router.log 2>&1 &
pids="$pids $!"
wait_for router.log 'is ready'

"$weir" put file /upgrade/file --repo state/repo --json > put.log 2>&1 &
pids="$pids $!"
wait_for put.log '"object"'
"$weir" get /upgrade/file -o copy
cmp file copy

# An interrupted download.
"$weir" put large /upgrade/large --repo state/repo --segment-size 1200 --signature-per manifest
(cd state && exec "$weir" get /upgrade/large -o large) > get.log 2>&1 &
get=$!
for _ in $(seq 200); do
    part=$(find state -name '*large*part*' -size +2M)
    [ -n "$part" ] && break
    sleep 0.02
done
kill $get || { cat get.log >&2; exit 1; }; wait $get 2>/dev/null || true

# The controller's database: an operator's token and a registered file.
database=state/controller.db
"$weir" controller --database $database token add --role operator --name me > state/me.token
"$weir" controller --database $database --listen 127.0.0.1:0 --json > controller.log 2>&1 &
pids="$pids $!"
wait_for controller.log '"ready"'
url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' controller.log)
"$weir" put file /upgrade/registered --segment-size 1200 --json \
    --controller "$url" --controller-token-file state/me.token > registered.log 2>&1 &
pids="$pids $!"
wait_for registered.log '"object"'
for _ in $(seq 100); do
    "$weir" controller file list --controller "$url" --controller-token-file state/me.token > files
    grep -q /upgrade/registered files && break
    sleep 0.1
done
wait_for files /upgrade/registered
cat files
stop
ls -lR state
tar --sort=name --owner=0 --group=0 --numeric-owner --sparse -C state -czf "$here/$version.tar.gz" .
