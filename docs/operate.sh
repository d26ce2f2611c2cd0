#!/bin/sh
# Starts the controller and the four routers of docs/operate.md on 127.0.0.1, and publishes an
# 80 MiB file, all in one terminal. Ctrl-C stops everything.
#
#   docs/operate.sh [FOLDER]      FOLDER is ~/weir-operate by default
#
# `weir` must be in PATH. PORT (7000) is the number below the four UDP ports, and
# CONTROLLER_PORT (8636) the controller's.
set -eu
umask 077

folder=${1:-$HOME/weir-operate}
port=${PORT:-7000}
controller_port=${CONTROLLER_PORT:-8636}
url=http://127.0.0.1:$controller_port
command -v weir >/dev/null || { echo "operate.sh: weir is not in PATH" >&2; exit 1; }
mkdir -p "$folder"
cd "$folder"

pids=
stop() {
    trap - EXIT INT TERM HUP
    # Newest first, so that the producer and routers end before the controller.
    for pid in $pids; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# start NAME COMMAND...: runs a command in the background, with its output in NAME.log.
start() {
    log=$1.log
    shift
    "$@" >"$log" 2>&1 &
    pids="$! $pids"
}

# wait_for PID-LOG COMMAND...: repeats a command until it succeeds, for 20 seconds at most.
wait_for() {
    log=$1
    shift
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ $tries -gt 100 ]; then
            echo "operate.sh: $log did not become ready:" >&2
            cat "$log" >&2
            exit 1
        fi
        sleep 0.2
    done
}

# router NAME STORE NUMBER [NEIGHBOUR-NUMBER...]
router() {
    name=$1 store=$2 number=$3
    shift 3
    weir controller --database controller.db token add --role router --name "$name" >"$name.token"
    {
        printf '[controller]\nurl = "%s"\nname = "%s"\ntoken_file = "%s.token"\n' \
            "$url" "$name" "$name"
        for neighbour; do
            printf '[[face]]\nuri = "udp4://127.0.0.1:%s"\n' $((port + neighbour))
        done
    } >"$name.toml"
    start "$name" weir router -c "$name.toml" --unix "$name.sock" \
        --udp "127.0.0.1:$((port + number))" --tcp none --store "$store"
    wait_for "$name.log" env NDN_CLIENT_TRANSPORT="unix://$PWD/$name.sock" weir status
}

weir controller --database controller.db token add --role operator --name me >me.token
start controller weir controller --database controller.db --listen "127.0.0.1:$controller_port"
wait_for controller.log \
    weir controller file list --controller "$url" --controller-token-file me.token

router origin 1MiB 1
router one 64MiB 2 1
router two 64MiB 3 1
router edge 1MiB 4 2 3

[ -e large.bin ] || head -c 83886080 /dev/urandom >large.bin
start put env NDN_CLIENT_TRANSPORT="unix://$PWD/origin.sock" \
    weir put large.bin /data/large --controller "$url" --controller-token-file me.token
wait_for put.log grep -q /data/large put.log

echo "Dashboard:  $url/#token=$(cat me.token)"
echo "Fetch:      NDN_CLIENT_TRANSPORT=unix://$PWD/edge.sock weir get /data/large -o first.bin"
echo "Logs:       $PWD/*.log"
echo "Ctrl-C stops the controller, the routers and weir put."
# A process that ends by itself ends the others too, after its log is shown.
while for pid in $pids; do kill -0 "$pid" 2>/dev/null || break; done && kill -0 "$pid" 2>/dev/null
do
    sleep 1 &
    wait $! || true
done
echo "operate.sh: a process has ended; see the logs in $PWD" >&2
exit 1
