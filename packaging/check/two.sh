#!/bin/sh
# From two fresh systems to a file that the second one caches: prints how long the commands of the
# book's first hour took, and fails if they do not work.
#
# usage: two.sh BASE PACKAGE.deb
#
# BASE is the root of a Debian with systemd (mmdebstrap). It is not changed: the systems run on
# copies. Needs root and iproute2.
set -eu

base=$1 package=$2
. "$(dirname "$0")/system.sh"

fail() {
    echo "two.sh: $*" >&2
    exit 1
}
commands=0
# on INIT COMMAND...: a command that a user types.
on() {
    commands=$((commands + 1))
    say "$(if [ "$1" = "$one" ]; then echo one; else echo two; fi)\$ $(echo "$@" | cut -d' ' -f2-)"
    in_system "$@" >&2 || fail "$*"
}

one=$(start_system "$base" one)
two=$(start_system "$base" two)
for system in one two; do
    install -m 644 "$package" "$work/$system/root/weir.deb"
done
for init in "$one" "$two"; do
    wait_for in_system "$init" systemctl is-active multi-user.target
done
ip link add weir0 netns "$one" type veth peer name weir0 netns "$two"
nsenter --target "$one" --net ip addr add 192.0.2.1/24 dev weir0
nsenter --target "$two" --net ip addr add 192.0.2.2/24 dev weir0
for init in "$one" "$two"; do
    nsenter --target "$init" --net ip link set weir0 up
done
in_system "$one" sh -c 'head -c 100M /dev/urandom >sample.bin'

start=$(date +%s)
on "$one" apt-get install -qq --yes ./weir.deb
on "$one" systemd-run --quiet --working-directory=/root --setenv=HOME=/root \
    weir put sample.bin /demo/sample
on "$two" apt-get install -qq --yes ./weir.deb
on "$two" weir route add /demo udp://192.0.2.1
on "$two" weir get /demo/sample -o sample.bin
cmp "$work/one/root/sample.bin" "$work/two/root/sample.bin" || fail "the copy differs"
nsenter --target "$two" --net ip link set weir0 down
on "$two" weir get /demo/sample -o again.bin
cmp "$work/one/root/sample.bin" "$work/two/root/again.bin" || fail "the cached copy differs"
seconds=$(($(date +%s) - start))
say "a file of 100 MiB in the cache of the second system: $commands commands, $seconds s"
