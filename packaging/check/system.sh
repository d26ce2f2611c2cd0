# Boots Debian systems in namespaces of their own, for the scripts that read this file.
#
# They define `fail MESSAGE...`. `$work` is a folder that is deleted at the end, with the systems.
work=$(mktemp -d)
group=$work/cgroup/weir-check-$$

say() { echo "==> $*" >&2; }

# Waits at most 30 seconds for a command to succeed.
wait_for() {
    for _ in $(seq 150); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    fail "timed out: $*"
}

# start_system BASE NAME: boots a copy of BASE in $work/NAME, and prints the process ID of its init.
start_system() {
    root=$work/$2
    cp -a "$1" "$root"
    cat >"$root.start" <<END
set -e
mount --make-rprivate /
mount --bind $root $root
mount -t proc proc $root/proc
mount -t sysfs -o ro sysfs $root/sys
mount -t cgroup2 cgroup $root/sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs $root/dev
for node in null zero full random urandom tty; do
    touch $root/dev/\$node
    mount --bind /dev/\$node $root/dev/\$node
done
mkdir $root/dev/pts $root/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts $root/dev/pts
ln -s pts/ptmx $root/dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs $root/dev/shm
mount -t tmpfs -o mode=755 tmpfs $root/run
cd $root
mkdir -p .old
pivot_root . .old
umount -l /.old
rmdir /.old
exec env -i container=weir-check PATH=/usr/sbin:/usr/bin /usr/sbin/init
END
    mkdir "$group/$2"
    sh -c 'echo $$ >"$1/cgroup.procs" && exec unshare --pid --fork --mount --net --uts --ipc \
        --cgroup sh "$2"' sh "$group/$2" "$root.start" >"$root.console" 2>&1 &
    outer=$!
    for _ in $(seq 100); do
        init=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null | tr -d ' ')
        if [ -n "$init" ] && grep -q systemd "/proc/$init/comm"; then break; fi
        sleep 0.1
    done
    [ -n "$init" ] || { cat "$root.console" >&2; fail "no system"; }
    echo "$init"
}

# in_system INIT COMMAND...: runs a command in a system.
in_system() {
    of=$1
    shift
    nsenter --target "$of" --all -- \
        env --chdir=/root -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
}

end() {
    status=$?
    set +e
    echo 1 >"$group/cgroup.kill"
    sleep 1
    # Groups of services, innermost first.
    find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
    umount "$work/cgroup"
    rm -rf --one-file-system "$work"
    exit $status
}
mkdir "$work/cgroup"
mount -t cgroup2 cgroup "$work/cgroup"
mkdir "$group"
trap end EXIT
trap 'exit 1' INT TERM
