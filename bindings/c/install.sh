#!/bin/sh
# Installs the header, the libraries and the pkg-config file: install.sh [PREFIX [BUILD-FOLDER]].
# Build first: cargo build --release -p weir-c
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:-/usr/local}
built=${2:-$here/../../target/release}
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
install -d "$prefix/include/weir" "$prefix/lib/pkgconfig"
install -m 644 "$here/include/weir/socket.h" "$prefix/include/weir/"
install -m 644 "$built/libweir.a" "$prefix/lib/"
install -m 755 "$built/libweir.so" "$prefix/lib/"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/weir.pc.in" \
    > "$prefix/lib/pkgconfig/weir.pc"
