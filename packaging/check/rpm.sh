#!/bin/sh
# Unpacks the package into an empty root and runs its program there, where there is no libc.
#
# usage: rpm.sh PACKAGE.rpm
#
# Needs rpm, rpm2cpio, cpio and root.
set -eu

package=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() {
    echo "rpm.sh: $*" >&2
    exit 1
}
for file in /usr/bin/weir /etc/weir/weir.toml /etc/weir/weir-gateway.toml \
    /usr/lib/systemd/system/weir-router.service /usr/lib/systemd/system/weir-router.socket \
    /usr/lib/systemd/system/weir-gateway.service /usr/share/man/man5/weir.toml.5.gz \
    /usr/share/doc/weir/THIRD-PARTY /usr/share/doc/weir/sbom.cdx.json; do
    rpm -qlp "$package" | grep -qx "$file" || fail "no $file"
done
[ "$(rpm -qp --configfiles "$package" | xargs)" = \
    "/etc/weir/weir-gateway.toml /etc/weir/weir.toml" ] ||
    fail "the configuration files are not marked as such"
# rpm verifies the hashes.
rpm -K --nosignature "$package" >&2 || fail "rpm -K failed"
if rpm -qp --requires "$package" | grep -v -e '^rpmlib(' -e '^config(weir)' -e '^/bin/sh$'; then
    fail "the package requires these"
fi
mkdir "$work/database" "$work/root"
rpm2cpio "$package" | (cd "$work/root" && cpio --quiet -idm)
chroot "$work/root" /usr/bin/weir --version >"$work/version"
grep -q '^weir ' "$work/version" || fail "weir --version printed something else"
# A router without any file of a system: no /proc, no /dev, no libc.
mkdir -p "$work/root/run/nfd"
timeout --preserve-status 5 unshare --net chroot "$work/root" /usr/bin/weir router \
    --config /etc/weir/weir.toml >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "no router"; }
echo "==> the package works" >&2
