/* Random calls with random descriptors, lengths and flags: random SEED CALLS. No call may crash,
 * hang or write outside of its buffers. Each error must be one of the README's. Meanwhile one
 * thread answers, and another closes random sockets. */
#define _GNU_SOURCE
#include "check.h"
#include <stdint.h>

static uint64_t state;

/* Number of successful calls. The others must fail, and there must be both. */
enum { BIND, SET, GET, SENDTO, RECVFROM, SENDMSG, RECVMSG, KINDS };
static long succeeded[KINDS];
#define COUNT(kind, call) ((void)(succeeded[kind] += (call) >= 0))

static uint64_t number(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below == 0 ? 0 : state % below;
}

enum { FDS = 12, LARGE = 200000 };

/* Own sockets, other descriptors, closed ones, and numbers without a descriptor. */
static int fds[FDS];
static int others[2];

static int any_fd(void)
{
    static const int none[] = {-1, -2147483647 - 1, 2147483647, 1000000, 0, 1};
    switch (number(8)) {
    case 0: return none[number(sizeof none / sizeof *none)];
    case 1: return others[number(2)];
    default: return fds[number(number(2) == 0 ? 2 : FDS)];
    }
}

static const char *any_text(void)
{
    static const char *const texts[] = {
        "/p", "/p/a", "/p/b", "/p/live", "/q", "/", "", "p", "//", "/%zz", "/p/v=1", "ndn:/p/a",
        "\xff\xfe", "/p/params-sha256=00", "/p/32=metadata/v=1/seg=0", "tcp://", "/p/.../..",
    };
    return number(3) > 0 ? "/p/a" : texts[number(sizeof texts / sizeof *texts)];
}

static const char *any_option(void)
{
    static const char *const options[] = {
        "retries=0", "retries=x", "lifetime=1ms", "lifetime=20ms", "range=0", "range=1,2",
        "range=99999999999999999999", "sign=digest", "sign=/none", "sign=default", "anchors=",
        "anchors=/dev/null", "anchors=:::", "allow_unsigned=true", "router=default", "router=/none",
        "hicn_key=", "hicn_key=/dev/null", "accept_unverified=true",
        "router=tcp4://[::1]", "reliable=false", "behind=skip", "input_buffer=64KiB", "=", "==", "",
        "segment_size=1", "segment_size=8kB", "output_buffer=64KiB", "request_wait=1ms",
        "retries", "sign", "range", "router", "signs=manifest", "verify=false", "on_bad=deliver",
    };
    return options[number(sizeof options / sizeof *options)];
}

/* An address of exactly the stated size, so that reads beyond it are detected; or NULL. */
static struct sockaddr *any_address(socklen_t *len)
{
    const char *text = any_text();
    struct sockaddr_icn whole = name_of(text);
    if (number(20) == 0)
        whole.sicn_family = (sa_family_t)number(70000);
    switch (number(4)) {
    case 0: *len = (socklen_t)(number(sizeof whole + 3)); break;
    case 1: *len = (socklen_t)(sizeof whole.sicn_family + strlen(text) + number(2)); break;
    default: *len = sizeof whole; break;
    }
    if (number(20) == 0)
        return NULL;
    struct sockaddr *address = malloc(*len + (*len == 0));
    CHECK(address != NULL);
    memset(address, 'x', *len);
    memcpy(address, &whole, *len < sizeof whole ? *len : sizeof whole);
    return address;
}

static int any_flags(void)
{
    static const int flags[] = {ICN_MORE, ICN_NEWEST, ICN_ANSWER, ICN_REFUSE, MSG_PEEK, -1};
    /* Without MSG_DONTWAIT some calls would rightly wait forever. */
    int chosen = MSG_DONTWAIT;
    while (number(2) == 0)
        chosen |= flags[number(40) == 0 ? 5 : number(5)];
    return chosen;
}

static size_t any_len(void)
{
    switch (number(6)) {
    case 0: return 0;
    case 1: return number(3);
    case 2: return number(LARGE);
    default: return number(2000);
    }
}

/* A buffer of exactly this size, or NULL. */
static void *any_room(size_t len)
{
    if (number(20) == 0)
        return NULL;
    void *room = malloc(len + (len == 0));
    CHECK(room != NULL);
    memset(room, 'r', len);
    return room;
}

static void message(int fd, int is_sent)
{
    enum { PIECES = 4 };
    struct iovec pieces[PIECES];
    struct msghdr header = {0};
    socklen_t name_len;
    header.msg_name = any_address(&name_len);
    header.msg_namelen = name_len;
    header.msg_iovlen = number(PIECES + 1);
    header.msg_iov = number(20) == 0 ? NULL : pieces;
    header.msg_controllen = number(3) == 0 ? number(2000) : 0;
    header.msg_control = any_room(header.msg_controllen);
    for (size_t at = 0; at < PIECES; at++) {
        pieces[at].iov_len = any_len();
        pieces[at].iov_base = any_room(pieces[at].iov_len);
    }
    if (number(40) == 0)
        header.msg_iovlen = (size_t)-1 >> number(60);
    if (header.msg_iovlen > PIECES && header.msg_iov != NULL && header.msg_iovlen <= 1024)
        header.msg_iovlen = 5000;
    struct msghdr given_header = header;
    struct msghdr *passed = number(40) == 0 ? NULL : &header;
    if (is_sent)
        COUNT(SENDMSG, icn_sendmsg(fd, passed, any_flags()));
    else
        COUNT(RECVMSG, icn_recvmsg(fd, passed, any_flags()));
    for (size_t at = 0; at < PIECES; at++)
        free(pieces[at].iov_base);
    free(given_header.msg_control);
    free(given_header.msg_name);
}

static void option_call(int fd)
{
    const char *text = any_option();
    socklen_t len = (socklen_t)(strlen(text) + number(2));
    int level = number(20) == 0 ? SOL_SOCKET : SOL_ICN;
    int option = number(4) == 0 ? (int)number(5) : ICN_OPTION;
    if (number(3) > 0) {
        char *value = any_room(len);
        if (value != NULL)
            memcpy(value, text, len);
        COUNT(SET, icn_setsockopt(fd, level, option, value, len));
        free(value);
        return;
    }
    len = (socklen_t)any_len();
    char *value = any_room(len);
    if (value != NULL && len > 0)
        snprintf(value, len, "%.*s", (int)strcspn(text, "="), number(4) == 0 ? any_text() : text);
    COUNT(GET, icn_getsockopt(fd, level, option, value, number(20) == 0 ? NULL : &len));
    free(value);
}

static void transfer(int fd, int is_sent)
{
    socklen_t address_len;
    size_t len = any_len();
    void *octets = any_room(len);
    struct sockaddr *address = any_address(&address_len);
    if (is_sent)
        COUNT(SENDTO, icn_sendto(fd, octets, len, any_flags(), address, address_len));
    else
        COUNT(RECVFROM, icn_recvfrom(fd, octets, len, any_flags(), address,
                                     number(20) == 0 ? NULL : &address_len));
    free(octets);
    free(address);
}

static void bind_any(int fd)
{
    socklen_t len;
    struct sockaddr *address = any_address(&len);
    COUNT(BIND, icn_bind(fd, address, len));
    free(address);
}

static void open_any(int *place)
{
    int types[] = {SOCK_CONS, SOCK_PROD, SOCK_PROD, SOCK_CONS | SOCK_NONBLOCK, SOCK_STREAM, -1};
    int type = types[number(6)], protocol = (int)number(6);
    /* Two matching sockets. */
    if (place == &fds[0] || place == &fds[1])
        type = place == &fds[0] ? SOCK_PROD : SOCK_CONS, protocol = 0;
    int fd = icn_socket(number(20) == 0 ? AF_UNIX : AF_ICN, type, protocol);
    if (fd < 0)
        return;
    int before = *place;
    *place = fd;
    icn_close(before);
    if (number(4) > 0)
        set(fd, "sign=digest");
    set(fd, "allow_unsigned=true");
    bind_to(fd, place == &fds[0] || place == &fds[1] ? "/p" : number(3) == 0 ? "/" : "/q");
}

/* Closes some sockets while threads are inside calls, and opens others. */
static volatile int is_over;

static void *close_some(void *unused)
{
    uint64_t own = 88172645463325252u;
    (void)unused;
    while (!is_over) {
        own = own * 6364136223846793005u + 1442695040888963407u;
        icn_close(fds[(own >> 33) % FDS]);
        usleep(5000 + (own >> 40) % 20000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t closes;
    char octet;
    if (argc != 3) {
        fprintf(stderr, "random SEED CALLS\n");
        return 2;
    }
    state = strtoull(argv[1], NULL, 10) * 2654435769u + 1;
    CHECK(pipe(others) == 0);
    CHECK(fcntl(others[0], F_SETFL, O_NONBLOCK) == 0);
    memset(fds, -1, sizeof fds);
    for (int at = 0; at < FDS; at++)
        open_any(&fds[at]);
    CHECK(pthread_create(&closes, NULL, close_some, NULL) == 0);
    for (long calls = strtol(argv[2], NULL, 10); calls > 0; calls--) {
        int fd = any_fd();
        /* A requested object may arrive. */
        if (number(100) == 0)
            usleep(3000);
        switch (number(16)) {
        case 0: case 1: open_any(&fds[number(FDS)]); break;
        case 2: bind_any(fd); break;
        case 3: if (number(4) == 0) icn_close(fd); break;
        case 4: case 5: option_call(fd); break;
        case 6: case 7: message(fd, 1); break;
        case 8: case 9: message(fd, 0); break;
        case 10: case 11: case 12: transfer(fd, 1); break;
        default: transfer(fd, 0); break;
        }
    }
    long all = 0;
    for (int kind = 0; kind < KINDS; kind++)
        all += succeeded[kind];
    CHECK(all > 0);
    is_over = 1;
    CHECK(pthread_join(closes, NULL) == 0);
    /* Other descriptors are unchanged, and sockets work. */
    FAILS(read(others[0], &octet, 1), EAGAIN);
    CHECK(fcntl(0, F_GETFD) >= 0 && fcntl(1, F_GETFD) >= 0);
    for (int at = 0; at < FDS; at++)
        icn_close(fds[at]);
    int from = producer("/p"), to = consumer("/p");
    CHECK(publish(from, "/p/last", "last", 4, 0) == 4);
    check_get(to, "/p/last", "last", 4, 100);
    CHECK(icn_close(from) == 0 && icn_close(to) == 0);
    printf("ok\n");
    return 0;
}
