#!/bin/sh
# Installs, uses, reloads, kills, upgrades and purges the package in a Debian that runs in
# namespaces of its own.
#
# usage: deb.sh BASE FIRST.deb SECOND.deb
#
# BASE is the root of a Debian with systemd (mmdebstrap). It is not changed: the system runs on a
# copy. FIRST and SECOND are two versions of the package. Needs root and curl.
set -eu

base=$1 first=$2 second=$3
init=
. "$(dirname "$0")/system.sh"
root=$work/root

fail() {
    echo "deb.sh: $*" >&2
    if [ -n "$init" ]; then
        inside journalctl --no-pager --lines 60 --unit weir-router --unit weir-gateway >&2 || true
    fi
    exit 1
}
inside() { in_system "$init" "$@"; }
# The status of the store, one key a line.
store_status() { inside weir status cs --json | tr -d ' ' | tr ',{' '\n\n'; }
store_size() { store_status | sed -n 's/^"capacity_bytes"://p' | head -n 1; }
# Whether all that waits is written, and the disks have at least this number of entries.
disk_has() {
    store_status | sed -n '/^"disk":/,$p' >"$work/disk"
    [ "$(sed -n 's/^"entries"://p' "$work/disk" | head -n 1)" -ge "$1" ] &&
        grep -q '^"writes_waiting":0' "$work/disk"
}
pid() { inside systemctl show --property MainPID --value weir-router; }
gateway_pid() { inside systemctl show --property MainPID --value weir-gateway; }
# Whether the gateway serves the file. The system has no curl.
gateway_serves() {
    nsenter --target "$init" --net curl --silent --fail --max-time 20 --output "$work/by-http" \
        "http://127.0.0.1:8080$1" && cmp "$root/srv/file" "$work/by-http"
}
# Publishes the file under a name in the background, and ends that again.
start_put() {
    inside sh -c 'echo $$ >/srv/put.pid; exec weir put /srv/file "$0"' "$1" >"$work/put" 2>&1 &
    put=$!
    wait_for grep -q "$1" "$work/put"
}
stop_put() {
    inside sh -c 'kill "$(cat /srv/put.pid)"'
    wait "$put" || true
}
# Files outside of what every system changes as it runs.
files() {
    (cd "$root" && find . -xdev \( -path ./var/log -o -path ./var/lib/dpkg -o -path ./run -o \
        -path ./tmp -o -path ./var/tmp -o -path ./var/lib/systemd -o -path ./root -o \
        -path ./srv -o -path ./var/lib/private -o -path ./etc/machine-id -o \
        -path ./var/cache \) -prune -o -print | sort)
}
say "starting the system"
init=$(start_system "$base" root)
install -m 644 "$first" "$root/first.deb"
install -m 644 "$second" "$root/second.deb"
wait_for inside systemctl is-active multi-user.target
files >"$work/before"

say "installing"
inside dpkg -i /first.deb >&2
wait_for inside systemctl is-active weir-router
[ "$(inside systemctl is-enabled weir-router)" = enabled ] || fail "not enabled"
inside systemctl is-active weir-router.socket >/dev/null || fail "the socket unit does not run"
[ "$(inside stat -L -c %a /run/nfd /run/nfd/nfd.sock | xargs)" = "755 666" ] ||
    fail "users cannot connect to the router"
inside weir status >/dev/null || fail "root cannot ask the router for its status"
if inside journalctl --unit weir-router | grep -q 'no listener is configured'; then
    fail "the socket unit has other addresses than the default configuration"
fi

say "a file through the router and its cache"
inside sh -c 'head -c 3000000 /dev/urandom >/srv/file'
start_put /check/file
inside weir get /check/file -o /srv/first >&2
inside cmp /srv/file /srv/first
stop_put
inside weir get /check/file -o /srv/second >&2 || fail "the cache does not have the file"
inside cmp /srv/file /srv/second

say "a disk with io_uring, in the sandbox"
cat >"$root/etc/weir/weir.toml" <<'END'
[[disk]]
path = "/var/lib/weir/disk"
size = "64MiB"
engine = "io-uring"
[disks]
offer = "arrival"
END
inside systemctl restart weir-router || fail "the disk does not work"
start_put /check/file
inside weir get /check/file -o /srv/third >&2
stop_put
# 375 segments and their metadata.
wait_for disk_has 376

say "reload"
before=$(pid)
inside systemctl reload weir-router || fail "reload failed"
wait_for inside weir status
[ "$(pid)" = "$before" ] || fail "a reload started another process"
cp "$root/etc/weir/weir.toml" "$work/weir.toml"
printf '[store]\nsize = "8MiB"\n' >>"$root/etc/weir/weir.toml"
inside systemctl reload weir-router || fail "a reload with another size of the store failed"
[ "$(store_size)" = 8388608 ] || fail "the reload changed nothing"
printf '[store]\nsize = "9MiB"\nno_such_key = 1\n' | cat "$work/weir.toml" - \
    >"$root/etc/weir/weir.toml"
if inside systemctl reload weir-router 2>/dev/null; then fail "a bad file was loaded"; fi
[ "$(pid)" = "$before" ] || fail "a bad file ended the process"
[ "$(store_size)" = 8388608 ] || fail "a bad file changed the store"
cp "$work/weir.toml" "$root/etc/weir/weir.toml"

say "a wrong file at a restart"
printf '[store]\nno_such_key = 1\n' >"$root/etc/weir/weir.toml"
if inside systemctl restart weir-router 2>/dev/null; then fail "a wrong file was accepted"; fi
# Long enough for every limit of starts in the defaults of systemd.
sleep 15
cp "$work/weir.toml" "$root/etc/weir/weir.toml"
inside systemctl restart weir-router || fail "no restart after the file was corrected"
inside systemctl is-active weir-router.socket >/dev/null || fail "the socket unit has failed"

say "a client waits for the router"
inside systemctl stop weir-router 2>/dev/null
[ -S "/proc/$init/root/run/nfd/nfd.sock" ] || fail "the socket ends with the router"
inside weir status general >/dev/null || fail "a client fails while the router is stopped"
wait_for inside systemctl is-active weir-router
before=$(pid)

say "kill -9"
inside sh -c "kill -9 $before"
inside weir status general >/dev/null || fail "a client fails while the router restarts"
restarted() {
    [ "$(pid)" != 0 ] && [ "$(pid)" != "$before" ] && inside systemctl is-active weir-router
}
wait_for restarted
inside weir get /check/file -o /srv/fourth >&2 || fail "the disk lost the file"
inside cmp /srv/file /srv/fourth

say "the gateway"
[ "$(inside systemctl is-enabled weir-gateway)" = disabled ] || fail "the gateway is enabled"
if inside systemctl is-active weir-gateway >/dev/null; then fail "the gateway runs"; fi
inside systemctl start weir-gateway || fail "the gateway does not start"
listens=$(nsenter --target "$init" --net ss --listening --tcp --numeric --no-header |
    awk '$4 ~ /:8080$/ { print $4 }')
[ "$listens" = 127.0.0.1:8080 ] || fail "the gateway listens at $listens"
gateway_serves /check/file || fail "the gateway does not serve the file"
before=$(gateway_pid)
inside systemctl restart weir-router || fail "the router does not restart"
# Another file, which the gateway does not have in memory.
start_put /check/second
gateway_serves /check/second || fail "the gateway does not survive a restart of the router"
stop_put
[ "$(gateway_pid)" = "$before" ] || fail "the gateway ended with the router"
cat >>"$root/etc/weir/weir-gateway.toml" <<'END'
[[origin]]
prefix = "/site"
url = "http://127.0.0.1:8081/"
END
inside systemctl restart weir-gateway || fail "the gateway does not start with an origin"
[ -e "$root/var/lib/private/weir-gateway/keys" ] || fail "the key is not in /var/lib/weir-gateway"

say "upgrade"
before=$(pid)
gateway_before=$(gateway_pid)
inside dpkg -i --force-confold /second.deb >&2
wait_for restarted
grep -q io-uring "$root/etc/weir/weir.toml" || fail "the upgrade replaced the configuration"
inside weir get /check/file -o /srv/fifth >&2 || fail "the upgrade lost the file"
wait_for inside systemctl is-active weir-gateway
[ "$(gateway_pid)" != "$gateway_before" ] || fail "the upgrade left the old gateway"
grep -q /site "$root/etc/weir/weir-gateway.toml" || fail "the upgrade replaced the configuration"
gateway_serves /check/file || fail "the gateway does not serve after the upgrade"

say "the controller"
[ "$(inside systemctl is-enabled weir-controller)" = disabled ] || fail "the controller is enabled"
inside systemctl start weir-controller || fail "the controller does not start"
inside weir controller --database /var/lib/weir-controller/controller.db token list >&2 ||
    fail "root cannot list the tokens"
inside systemctl stop weir-controller

say "purge"
inside dpkg --purge weir >&2
[ ! -e "/proc/$init/root"/run/nfd ] || fail "/run/nfd is left"
for state in weir weir-controller weir-gateway; do
    [ ! -e "$root/var/lib/private/$state" ] || fail "/var/lib/private/$state is left"
done
files >"$work/after"
diff "$work/before" "$work/after" >&2 || fail "files are left"
say "the package works"
