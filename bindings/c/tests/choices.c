/* Checks of options: router, trust, signing and range: choices CHECK [ARGUMENT...]. */
#define _GNU_SOURCE
#include "check.h"

static int set_to(int fd, const char *name, const char *value)
{
    char option[600];
    CHECK((size_t)snprintf(option, sizeof option, "%s=%s", name, value) < sizeof option);
    return set(fd, option);
}

static void check_option(int fd, const char *name, const char *wanted)
{
    char value[600];
    socklen_t len = sizeof value;
    strcpy(value, name);
    CHECK(icn_getsockopt(fd, SOL_ICN, ICN_OPTION, value, &len) == 0);
    CHECK(strcmp(value, wanted) == 0);
}

/* /p is one of the user's keys, but not the default. Arguments: certificates of both keys. */
static void keys(void)
{
    char octet, both[600];
    int fd, from = icn_socket(AF_ICN, SOCK_PROD, 0);
    check_option(from, "sign", "default");
    FAILS(set(from, "range=0"), ENOPROTOOPT);
    FAILS(set(from, "sign=signer"), EINVAL);
    CHECK(set(from, "sign=/nobody") == 0);
    FAILS(bind_to(from, "/p"), ENOKEY);
    CHECK(set(from, "sign=/p") == 0);
    check_option(from, "sign", "/p");
    CHECK(bind_to(from, "/p") == 0);
    FAILS(set(from, "sign=default"), EINVAL);
    CHECK(publish(from, "/p/a", "a", 1, 0) == 1);
    /* That key signs: its certificate as the only anchor is sufficient. */
    fd = consumer("/p");
    check_get(fd, "/p/a", "a", 1, 1);
    CHECK(set_to(fd, "anchors", given[0]) == 0);
    check_option(fd, "anchors", given[0]);
    check_get(fd, "/p/a", "a", 1, 1);
    CHECK(set_to(fd, "anchors", given[1]) == 0);
    FAILS(get(fd, "/p/a", &octet, 1, 0), EBADMSG);
    CHECK((size_t)snprintf(both, sizeof both, "%s:%s", given[1], given[0]) < sizeof both);
    CHECK(set_to(fd, "anchors", both) == 0);
    check_get(fd, "/p/a", "a", 1, 1);
    /* Invalid files do not change the setting. */
    FAILS(set(fd, "anchors=/nowhere/to/be/found"), ENOENT);
    FAILS(set(fd, "anchors=/dev/null"), EINVAL);
    check_option(fd, "anchors", both);
    CHECK(set(fd, "anchors=") == 0);
    check_option(fd, "anchors", "");
    check_get(fd, "/p/a", "a", 1, 1);
    FAILS(set(fd, "sign=default"), ENOPROTOOPT);
    CHECK(icn_close(fd) == 0);
    CHECK(icn_close(from) == 0);
}

/* Packets do not name the key of hICN's signature, and no signature covers the end. Arguments: as of
 * keys. */
static void hicn_key(void)
{
    char octet, some[100];
    int from = icn_socket(AF_ICN, SOCK_PROD, 0), fd = icn_socket(AF_ICN, SOCK_CONS, 0);
    struct sockaddr_icn address = name_of("hicn:b001::1");
    struct iovec room = {some, sizeof some};
    struct msghdr message = {0};
    CHECK(set(from, "mapping=hicn:b001::/16") == 0);
    CHECK(set(from, "signature_format=hicn") == 0);
    CHECK(set(from, "sign=/p") == 0);
    CHECK(bind_to(from, "hicn:b001::/16") == 0);
    CHECK(publish(from, "hicn:b001::1", "direct", 6, 0) == 6);
    CHECK(bind_to(fd, "hicn:b001::/16") == 0);
    check_option(fd, "hicn_key", "");
    CHECK(set_to(fd, "hicn_key", given[1]) == 0);
    FAILS(get(fd, "hicn:b001::1", &octet, 1, 0), EBADMSG);
    CHECK(set_to(fd, "hicn_key", given[0]) == 0);
    FAILS(set(fd, "hicn_key=/nowhere/to/be/found"), ENOENT);
    FAILS(set(fd, "hicn_key=/dev/null"), EINVAL);
    check_option(fd, "hicn_key", given[0]);
    message.msg_name = &address;
    message.msg_namelen = sizeof address;
    message.msg_iov = &room;
    message.msg_iovlen = 1;
    CHECK(icn_recvmsg(fd, &message, 0) == 6);
    CHECK(memcmp(some, "direct", 6) == 0 && message.msg_flags == 0);
    CHECK(icn_recvmsg(fd, &message, 0) == 0);
    CHECK(message.msg_flags == ICN_UNSIGNED_END);
    CHECK(set(fd, "hicn_key=") == 0);
    check_option(fd, "hicn_key", "");
    CHECK(icn_close(fd) == 0);
    CHECK(icn_close(from) == 0);
}

static void ranges(void)
{
    char *octets = content(20000);
    int from = producer("/p"), to = consumer("/p");
    CHECK(publish(from, "/p/a", octets, 20000, 0) == 20000);
    check_option(to, "range", "0");
    CHECK(set(to, "range = 7990, 20") == 0);
    check_option(to, "range", "7990,20");
    check_get(to, "/p/a", octets + 7990, 20, 7);
    CHECK(set(to, "range=19990") == 0);
    check_get(to, "/p/a", octets + 19990, 10, 100);
    CHECK(set(to, "range=19990,100") == 0);
    check_get(to, "/p/a", octets + 19990, 10, 100);
    CHECK(set(to, "range=20000,1") == 0);
    check_get(to, "/p/a", "", 0, 100);
    CHECK(set(to, "range=5,0") == 0);
    check_get(to, "/p/a", "", 0, 100);
    FAILS(set(to, "range=-1"), EINVAL);
    FAILS(set(to, "range=5-9"), EINVAL);
    /* A read keeps the options that it started with. */
    CHECK(set(to, "range=100,1000") == 0);
    char some[2000];
    CHECK(get(to, "/p/a", some, 10, 0) == 10);
    CHECK(set(to, "range=0") == 0);
    check_get(to, "/p/a", octets + 110, 990, 2000);
    check_get(to, "/p/a", octets, 20000, 5000);
    free(octets);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
}

/* Arguments: address and path of a router that has no link to the default router. */
static void routers(void)
{
    char octet;
    int there = icn_socket(AF_ICN, SOCK_PROD, 0), to = icn_socket(AF_ICN, SOCK_CONS, 0), here;
    check_option(there, "router", "default");
    FAILS(set(there, "router=nowhere"), EINVAL);
    FAILS(set(there, "router=tcp4://[::1]"), EINVAL);
    FAILS(set(there, "router="), EINVAL);
    CHECK(set_to(there, "router", given[0]) == 0);
    check_option(there, "router", given[0]);
    CHECK(bind_to(there, "/p") == 0);
    CHECK(publish(there, "/p/a", "there", 5, 0) == 5);
    CHECK(set_to(to, "router", given[1]) == 0);
    CHECK(bind_to(to, "/p") == 0);
    FAILS(set(to, "router=default"), EINVAL);
    check_get(to, "/p/a", "there", 5, 5);
    /* The same prefix at two routers at once, within one process. */
    here = producer("/p");
    CHECK(publish(here, "/p/a", "here", 4, 0) == 4);
    int other = consumer("/p");
    check_get(other, "/p/a", "here", 4, 4);
    check_get(to, "/p/a", "there", 5, 5);
    CHECK(icn_close(here) == 0);
    CHECK(icn_close(other) == 0);
    CHECK(icn_close(there) == 0);
    CHECK(icn_close(to) == 0);
    /* A session ends with the last socket of its router, even if other routers are in use. */
    threads_named_become("consumers", 0);
    int kept = consumer("/p"), two = icn_socket(AF_ICN, SOCK_CONS, 0);
    there = icn_socket(AF_ICN, SOCK_PROD, 0);
    CHECK(set_to(there, "router", given[0]) == 0);
    CHECK(set_to(two, "router", given[0]) == 0);
    CHECK(bind_to(there, "/p") == 0);
    CHECK(bind_to(two, "/p") == 0);
    threads_named_become("consumers", 2);
    CHECK(publish(there, "/p/b", "there", 5, 0) == 5);
    check_get(two, "/p/b", "there", 5, 5);
    CHECK(icn_close(there) == 0);
    threads_named_become("consumers", 2);
    CHECK(icn_close(two) == 0);
    threads_named_become("consumers", 1);
    CHECK(icn_close(kept) == 0);
    threads_named_become("consumers", 0);
    /* If the router is not running, no other router is tried. */
    to = icn_socket(AF_ICN, SOCK_CONS, 0);
    CHECK(set(to, "router=/nowhere/to/be/found") == 0);
    FAILS(bind_to(to, "/p"), ECONNREFUSED);
    CHECK(set(to, "router=default") == 0);
    CHECK(bind_to(to, "/p") == 0);
    FAILS(get(to, "/p/never", &octet, 1, 0), ENETUNREACH);
    CHECK(icn_close(to) == 0);
}

/* Sets folder and size of the disk, and binds. Returns errno. */
static int bind_with_disk(const char *prefix, const char *folder, const char *size)
{
    int fd = icn_socket(AF_ICN, SOCK_PROD, 0), error;
    CHECK(set_to(fd, "disk", folder) == 0);
    CHECK(set_to(fd, "disk_size", size) == 0);
    error = bind_to(fd, prefix) == 0 ? 0 : errno;
    CHECK(icn_close(fd) == 0);
    return error;
}

/* An unusable disk reports the reason. The prefix is reserved before and free afterwards. */
static void disks(void)
{
    int from = producer("/p");
    CHECK(bind_with_disk("/p", "/nowhere/at/all", "8MiB") == EADDRINUSE);
    CHECK(bind_with_disk("/q", "/nowhere/at/all", "8MiB") == ENOENT);
    CHECK(bind_with_disk("/q", "/dev/null", "8MiB") == ENOTDIR);
    /* No user can create files there, not even root. It may also be mounted read-only. */
    int error = bind_with_disk("/q", "/sys", "8MiB");
    CHECK(error == EACCES || error == EROFS);
    CHECK(bind_with_disk("/q", "/dev/shm", "8192GiB") == ENOSPC);
    CHECK(bind_with_disk("/q", given[0], "8MiB") == 0);
    CHECK(icn_close(producer("/q")) == 0);
    CHECK(icn_close(from) == 0);
}

int main(int argc, char **argv)
{
    static const struct check checks[] = {
        {"keys", keys},       {"hicn-key", hicn_key}, {"ranges", ranges},
        {"routers", routers}, {"disks", disks},
    };
    return run_check(argc, argv, checks, sizeof checks / sizeof *checks);
}
