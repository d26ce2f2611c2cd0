#!/bin/sh
# Runs the router from the image: as PID 1 of a user who is not root, with a read-only root and no
# /proc.
#
# usage: image.sh ROOT
#
# ROOT is a folder with the files of the image. Needs bubblewrap.
set -eu

root=$1
work=$(mktemp -d)
router=
fail() {
    echo "image.sh: $*" >&2
    cat "$work/log" >&2
    exit 1
}
end() {
    status=$?
    if [ -n "$router" ]; then kill -9 "$router" 2>/dev/null || true; fi
    rm -rf "$work"
    exit $status
}
trap end EXIT
trap 'exit 1' INT TERM

# run COMMAND...: in namespaces of its own, with the folders that a container gets for its data.
mkdir "$work/run" "$work/state"
run() {
    exec bwrap --unshare-all --as-pid-1 --die-with-parent --uid 6363 --gid 6363 \
        --ro-bind "$root" / --dev /dev --tmpfs /tmp --bind "$work/run" /run/nfd \
        --bind "$work/state" /var/lib/weir --clearenv --setenv PATH /usr/bin \
        --setenv HOME /var/lib/weir --setenv STATE_DIRECTORY /var/lib/weir \
        --info-fd 3 /usr/bin/weir "$@" 3>"$work/info"
}
(run --version) >"$work/log" 2>&1 || fail "weir --version failed"
grep -q '^weir ' "$work/log" || fail "weir --version printed something else"

(run router) >"$work/log" 2>&1 &
router=$!
for _ in $(seq 100); do
    if [ -S "$work/run/nfd.sock" ]; then break; fi
    sleep 0.1
done
[ -S "$work/run/nfd.sock" ] || fail "the router made no socket"
head -c 1000000 /dev/urandom >"$work/state/file"
(run put --sign digest /var/lib/weir/file /check/file) >"$work/put" 2>&1 &
put=$!
for _ in $(seq 100); do
    if grep -q /check/file "$work/put"; then break; fi
    sleep 0.1
done
(run get --allow-unsigned /check/file -o /var/lib/weir/copy) >"$work/get" 2>&1 ||
    { cat "$work/put" "$work/get" >&2; fail "get failed"; }
cmp "$work/state/file" "$work/state/copy" || fail "the file differs"
kill "$put" 2>/dev/null || true

# The router is PID 1, for which signals have no default action. bwrap reports its process.
pid=$(sed -n 's/.*"child-pid": *\([0-9]*\).*/\1/p' "$work/info")
kill -TERM "$(pgrep -P "$router" -f 'weir router' || echo "$pid")"
for _ in $(seq 100); do
    if ! kill -0 "$router" 2>/dev/null; then router=; break; fi
    sleep 0.1
done
[ -z "$router" ] || fail "the router ignores SIGTERM"
echo "==> the image works" >&2
