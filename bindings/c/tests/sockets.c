/* Checks of weir/socket.h against a router: sockets CHECK. */
#define _GNU_SOURCE
#include "check.h"

static void arguments(void)
{
    char octet;
    struct sockaddr_icn address = name_of("/p");
    struct msghdr message = {0};
    socklen_t len = sizeof address;
    int fd, pipes[2];
    FAILS(icn_socket(AF_UNIX, SOCK_CONS, 0), EAFNOSUPPORT);
    FAILS(icn_socket(AF_ICN, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
    FAILS(icn_socket(AF_ICN, SOCK_CONS, PROD_REL), EPROTONOSUPPORT);
    FAILS(icn_socket(AF_ICN, SOCK_PROD, CONS_REL), EPROTONOSUPPORT);
    fd = icn_socket(AF_ICN, SOCK_CONS | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    FAILS(get(fd, "/p/a", &octet, 1, 0), ENOTCONN);
    FAILS(icn_bind(fd, NULL, sizeof address), EFAULT);
    FAILS(icn_bind(fd, (struct sockaddr *)&address, 1), EINVAL);
    FAILS(icn_bind(fd, (struct sockaddr *)&address, sizeof address + 1), EINVAL);
    FAILS(bind_to(fd, ""), EINVAL);
    address.sicn_family = AF_UNIX;
    FAILS(icn_bind(fd, ADDRESS(address)), EAFNOSUPPORT);
    memset(&address, 'a', sizeof address);
    address.sicn_family = AF_ICN;
    FAILS(icn_bind(fd, ADDRESS(address)), EINVAL);
    address = name_of("/p/a");
    CHECK(bind_to(fd, "ndn:/p") == 0);
    FAILS(bind_to(fd, "/p"), EINVAL);
    FAILS(get(fd, "/p/a", NULL, 1, 0), EFAULT);
    FAILS(get(fd, "/p/a", &octet, 0, 0), EINVAL);
    FAILS(get(fd, "/p/a", &octet, 1, MSG_PEEK), EOPNOTSUPP);
    FAILS(icn_recvfrom(fd, &octet, 1, 0, NULL, &len), EFAULT);
    FAILS(icn_recvfrom(fd, &octet, 1, 0, (struct sockaddr *)&address, NULL), EFAULT);
    FAILS(icn_recvmsg(fd, NULL, 0), EFAULT);
    FAILS(icn_recvmsg(fd, &message, 0), EFAULT);
    FAILS(icn_sendmsg(fd, NULL, 0), EFAULT);
    message.msg_name = &address;
    message.msg_namelen = sizeof address;
    message.msg_iovlen = 1;
    FAILS(icn_recvmsg(fd, &message, 0), EFAULT);
    message.msg_iovlen = 5000;
    FAILS(icn_sendmsg(fd, &message, 0), EMSGSIZE);
    FAILS(publish(fd, "/p/a", "a", 1, 0), EOPNOTSUPP);
    /* Invalid descriptors: not open, not a socket, or closed. */
    CHECK(pipe(pipes) == 0);
    FAILS(get(-1, "/p/a", &octet, 1, 0), EBADF);
    FAILS(get(pipes[0], "/p/a", &octet, 1, 0), EBADF);
    FAILS(icn_close(pipes[0]), EBADF);
    FAILS(icn_close(0), EBADF);
    CHECK(icn_close(fd) == 0);
    FAILS(icn_close(fd), EBADF);
    FAILS(bind_to(fd, "/p"), EBADF);
    FAILS(set(fd, "retries=1"), EBADF);
    FAILS(publish(fd, "/p/a", "a", 1, 0), EBADF);
    FAILS(icn_recvmsg(fd, &message, 0), EBADF);
    /* A descriptor that was closed without icn_close, and whose number was reused. */
    fd = consumer("/p");
    CHECK(close(fd) == 0);
    CHECK(dup2(pipes[1], fd) == fd);
    FAILS(get(fd, "/p/a", &octet, 1, 0), EBADF);
    FAILS(icn_close(fd), EBADF);
    CHECK(fcntl(fd, F_GETFD) >= 0);
    CHECK(close(fd) == 0);
    CHECK(fcntl(pipes[0], F_SETFL, O_NONBLOCK) == 0);
    FAILS(read(pipes[0], &octet, 1), EAGAIN);
    fd = consumer("/p");
    CHECK(close(fd) == 0);
    CHECK(consumer("/q") == fd);
    CHECK(fcntl(fd, F_GETFD) >= 0);
    CHECK(icn_close(fd) == 0);
    CHECK(fcntl(fd, F_GETFD) == -1);
    /* Even if the number now belongs to another eventfd, that is not closed. */
    fd = consumer("/p");
    CHECK(close(fd) == 0);
    CHECK(eventfd(0, 0) == fd);
    CHECK(icn_close(fd) == 0);
    CHECK(fcntl(fd, F_GETFD) >= 0);
}

static void errors(void)
{
    char octets[100], *large = content(1 << 20);
    int one = producer("/p"), two = icn_socket(AF_ICN, SOCK_PROD, PROD_UNREL), fd;
    /* A prefix that is bound twice; a name outside of the prefix. */
    FAILS(bind_to(two, "/p"), EADDRINUSE);
    CHECK(set(two, "sign=digest") == 0);
    CHECK(set(two, "output_buffer=64KiB") == 0);
    CHECK(bind_to(two, "/unsigned") == 0);
    FAILS(set(two, "sign=default"), EINVAL);
    FAILS(publish(one, "/q/a", "a", 1, 0), EINVAL);
    FAILS(publish(one, "/q/a", NULL, 0, ICN_REFUSE), EINVAL);
    FAILS(publish(one, "/p/a", NULL, 1, 0), EFAULT);
    FAILS(publish(two, "/unsigned/a", large, 1 << 20, 0), EMSGSIZE);
    free(large);
    FAILS(get(one, "/p/a", octets, 1, 0), EOPNOTSUPP);
    /* Unsigned content is rejected, unless it is allowed. */
    CHECK(publish(two, "/unsigned/a", "hello", 5, 0) == 5);
    fd = consumer("/unsigned");
    FAILS(get(fd, "/p/a", octets, sizeof octets, 0), EINVAL);
    FAILS(get(fd, "/unsigned/a", octets, sizeof octets, 0), EBADMSG);
    CHECK(set(fd, "allow_unsigned=true") == 0);
    check_get(fd, "/unsigned/a", "hello", 5, 2);
    CHECK(icn_close(fd) == 0);
    fd = consumer("/unsigned");
    CHECK(set(fd, "accept_unverified=true") == 0);
    check_get(fd, "/unsigned/a", "hello", 5, 2);
    FAILS(set(fd, "accept_unverified=perhaps"), EINVAL);
    CHECK(icn_close(fd) == 0);
    /* No answer: the router has a route, and the producer does not publish. */
    fd = consumer("/");
    CHECK(set(fd, "lifetime=50ms") == 0);
    CHECK(set(fd, "retries=1") == 0);
    FAILS(get(fd, "/p/silence", octets, sizeof octets, 0), ETIMEDOUT);
    FAILS(get(fd, "/nobody", octets, sizeof octets, 0), ENETUNREACH);
    /* Closing frees the prefix. */
    CHECK(icn_close(one) == 0);
    CHECK(icn_close(two) == 0);
    one = producer("/p");
    CHECK(publish(one, "/p/a", NULL, 0, 0) == 0);
    check_get(fd, "/p/a", "", 0, 1);
    CHECK(icn_close(one) == 0);
    CHECK(icn_close(fd) == 0);
}

static void no_router(void)
{
    int fd = icn_socket(AF_ICN, SOCK_CONS, CONS_REL);
    FAILS(bind_to(fd, "/p"), ECONNREFUSED);
    CHECK(icn_close(fd) == 0);
    fd = icn_socket(AF_ICN, SOCK_PROD, PROD_REL);
    FAILS(bind_to(fd, "/p"), ECONNREFUSED);
    CHECK(icn_close(fd) == 0);
}

static void options(void)
{
    char value[32];
    socklen_t len;
    int fd = icn_socket(AF_ICN, SOCK_CONS, CONS_UNREL);
#define OPTION(option, wanted)                                                                     \
    do {                                                                                           \
        strcpy(value, option);                                                                     \
        len = sizeof value;                                                                        \
        CHECK(icn_getsockopt(fd, SOL_ICN, ICN_OPTION, value, &len) == 0);                          \
        CHECK(strcmp(value, wanted) == 0);                                                         \
        CHECK(len == sizeof wanted);                                                               \
    } while (0)
    OPTION("reliable", "false");
    OPTION("allow_unsigned", "false");
    OPTION("accept_unverified", "false");
    CHECK(set(fd, "lifetime = 250ms") == 0);
    OPTION("lifetime", "250ms");
    strcpy(value, "lifetime");
    len = 5;
    FAILS(icn_getsockopt(fd, SOL_ICN, ICN_OPTION, value, &len), ENOPROTOOPT);
    strcpy(value, "lifetime");
    CHECK(set(fd, "on_bad=deliver") == 0);
    strcpy(value, "on_bad");
    len = 7;
    FAILS(icn_getsockopt(fd, SOL_ICN, ICN_OPTION, value, &len), EMSGSIZE);
    CHECK(strcmp(value, "on_bad") == 0);
    FAILS(icn_getsockopt(fd, SOL_ICN, ICN_OPTION, NULL, &len), EFAULT);
    FAILS(icn_getsockopt(fd, SOL_ICN, ICN_OPTION, value, NULL), EFAULT);
    FAILS(icn_setsockopt(fd, SOL_ICN, ICN_OPTION, NULL, 4), EFAULT);
    FAILS(icn_setsockopt(fd, SOL_SOCKET, ICN_OPTION, "retries=1", 9), ENOPROTOOPT);
    FAILS(set(fd, "speed=1"), ENOPROTOOPT);
    FAILS(set(fd, "retries"), EINVAL);
    FAILS(set(fd, "retries=many"), EINVAL);
    FAILS(set(fd, "sign=digest"), ENOPROTOOPT);
    CHECK(icn_close(fd) == 0);
    fd = icn_socket(AF_ICN, SOCK_PROD, 0);
    OPTION("sign", "default");
    CHECK(set(fd, "sign=digest") == 0);
    OPTION("sign", "digest");
    FAILS(set(fd, "sign=perhaps"), EINVAL);
    CHECK(set(fd, "signs=manifest") == 0);
    CHECK(icn_close(fd) == 0);
}

static void objects(void)
{
    static const size_t sizes[] = {1, 7999, 8000, 8001, 1000000};
    char some[10], more[5000];
    int from = producer("/p"), to = consumer("/p");
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        char *octets = content(sizes[at]);
        CHECK(publish(from, "/p/object", octets, sizes[at], 0) == (ssize_t)sizes[at]);
        /* A new version may be noticed some milliseconds late. */
        usleep(20000);
        check_get(to, "/p/object", octets, sizes[at], at == 4 ? 65536 : 777);
        /* Several buffers for sending and receiving. */
        if (sizes[at] > sizeof some + sizeof more) {
            struct sockaddr_icn address = name_of("/p/pieces");
            struct iovec pieces[] = {{octets, 1}, {NULL, 0}, {octets + 1, sizes[at] - 1}};
            struct iovec rooms[] = {{some, sizeof some}, {more, sizeof more}};
            struct msghdr message = {0};
            size_t total = 0;
            message.msg_name = &address;
            message.msg_namelen = sizeof address;
            message.msg_iov = pieces;
            message.msg_iovlen = 3;
            CHECK(icn_sendmsg(from, &message, 0) == (ssize_t)sizes[at]);
            usleep(20000);
            message.msg_iov = rooms;
            message.msg_iovlen = 2;
            message.msg_flags = -1;
            for (ssize_t count; (count = icn_recvmsg(to, &message, 0)) != 0;) {
                size_t first = (size_t)count < sizeof some ? (size_t)count : sizeof some;
                CHECK(count > 0);
                CHECK(message.msg_flags == 0);
                CHECK(memcmp(octets + total, some, first) == 0);
                CHECK(memcmp(octets + total + first, more, (size_t)count - first) == 0);
                total += (size_t)count;
            }
            CHECK(total == sizes[at]);
        }
        free(octets);
    }
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
    /* Unverified content is reported. */
    to = icn_socket(AF_ICN, SOCK_CONS, 0);
    from = producer("/p");
    CHECK(set(to, "verify=false") == 0);
    CHECK(bind_to(to, "/p") == 0);
    CHECK(publish(from, "/p/plain", "plain", 5, 0) == 5);
    struct sockaddr_icn address = name_of("/p/plain");
    struct iovec room = {some, sizeof some};
    struct msghdr message = {0};
    message.msg_name = &address;
    message.msg_namelen = sizeof address;
    message.msg_iov = &room;
    message.msg_iovlen = 1;
    CHECK(icn_recvmsg(to, &message, 0) == 5);
    CHECK(message.msg_flags == ICN_UNVERIFIED);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
}

static void *publish_and_get(void *of)
{
    char text[64], *octets = content(100000);
    int from = ((int *)of)[0], to = ((int *)of)[1];
    for (int round = 0; round < 5; round++) {
        snprintf(text, sizeof text, "/p/of-%ld/%d", syscall(SYS_gettid), round);
        CHECK(publish(from, text, octets, 100000, 0) == 100000);
        check_get(to, text, octets, 100000, 5000);
    }
    free(octets);
    return NULL;
}

static void threads(void)
{
    struct waiting got, too;
    pthread_t others[4];
    int both[2] = {producer("/p"), consumer("/p")};
    /* Other calls continue while these wait for content that is published at the end. */
    start(&got, both[1], "/p/late");
    start(&too, both[1], "/p/late");
    for (int at = 0; at < 4; at++)
        CHECK(pthread_create(&others[at], NULL, publish_and_get, both) == 0);
    for (int at = 0; at < 4; at++)
        CHECK(pthread_join(others[at], NULL) == 0);
    CHECK(publish(both[0], "/p/late", "late", 4, 0) == 4);
    end(&got);
    end(&too);
    /* One call got the content; the other got the rest, which is empty. */
    CHECK(got.result + too.result == 4 && got.result * too.result == 0);
    CHECK(icn_close(both[0]) == 0);
    CHECK(icn_close(both[1]) == 0);
}

static void polling(void)
{
    char octets[100];
    struct sockaddr_icn address;
    struct msghdr message = {0};
    int from = producer("/p"), to = consumer("/p"), plain, error;
    CHECK(!is_readable(from, 0));
    CHECK(!is_readable(to, 0));
    FAILS(get(to, "/p/a", octets, sizeof octets, MSG_DONTWAIT), EAGAIN);
    CHECK(!is_readable(to, 0));
    /* The request arrives and is taken; then there is none. */
    CHECK(is_readable(from, -1));
    message.msg_name = &address;
    message.msg_namelen = sizeof address;
    CHECK(icn_recvmsg(from, &message, MSG_DONTWAIT) == 0);
    CHECK(strcmp(address.sicn_name, "/p/a") == 0);
    CHECK(message.msg_namelen == sizeof(sa_family_t) + 5);
    CHECK(!is_readable(from, 0));
    message.msg_namelen = sizeof address;
    FAILS(icn_recvmsg(from, &message, MSG_DONTWAIT), EAGAIN);
    CHECK(publish(from, "/p/a", "abc", 3, 0) == 3);
    CHECK(is_readable(to, -1));
    CHECK(get(to, "/p/a", octets, 2, MSG_DONTWAIT) == 2);
    CHECK(is_readable(to, 0));
    CHECK(get(to, "/p/a", octets, 2, MSG_DONTWAIT) == 1);
    CHECK(is_readable(to, -1));
    CHECK(get(to, "/p/a", octets, 2, MSG_DONTWAIT) == 0);
    CHECK(!is_readable(to, 0));
    /* An error makes the socket readable as well. */
    FAILS(get(to, "/p/refused", octets, 2, MSG_DONTWAIT), EAGAIN);
    do {
        CHECK(is_readable(from, -1) || is_readable(to, 0));
        while (icn_recvmsg(from, &message, MSG_DONTWAIT) == 0) {
            CHECK(publish(from, "/p/refused", NULL, 0, ICN_REFUSE) == 0);
            message.msg_namelen = sizeof address;
        }
        struct pollfd both[] = {{from, POLLIN, 0}, {to, POLLIN, 0}};
        CHECK(poll(both, 2, -1) > 0);
    } while (!is_readable(to, 0));
    FAILS(get(to, "/p/refused", octets, 2, MSG_DONTWAIT), ENETUNREACH);
    CHECK(!is_readable(to, 0));
    /* The same with O_NONBLOCK. */
    CHECK(fcntl(to, F_SETFL, O_NONBLOCK) == 0);
    CHECK(publish(from, "/p/b", "b", 1, 0) == 1);
    plain = (int)get(to, "/p/b", octets, 2, 0);
    error = errno;
    CHECK(plain == 1 || (plain == -1 && error == EAGAIN));
    CHECK(is_readable(to, -1));
    CHECK(icn_close(to) == 0);
    to = icn_socket(AF_ICN, SOCK_PROD | SOCK_NONBLOCK, 0);
    CHECK(bind_to(to, "/q") == 0);
    FAILS(icn_recvmsg(to, &message, 0), EAGAIN);
    CHECK(icn_close(to) == 0);
    CHECK(icn_close(from) == 0);
}

static void interests(void)
{
    char parameters[] = "what I have for you", text[100] = "";
    struct sockaddr_icn address = name_of("/p/reverse"), asked;
    struct iovec piece = {parameters, sizeof parameters}, room = {text, 5};
    struct msghdr message = {0}, request = {0};
    char *large = content(10000);
    int from = producer("/p"), to = consumer("/p");
    message.msg_name = &address;
    message.msg_namelen = sizeof address;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    CHECK(icn_sendmsg(to, &message, 0) == (ssize_t)sizeof parameters);
    /* Buffers too small for the name or the parameters: nothing is lost. */
    request.msg_name = &asked;
    request.msg_namelen = 20;
    request.msg_iov = &room;
    request.msg_iovlen = 1;
    FAILS(icn_recvmsg(from, &request, 0), EMSGSIZE);
    request.msg_namelen = sizeof asked;
    FAILS(icn_recvmsg(from, &request, 0), EMSGSIZE);
    CHECK(is_readable(from, 0));
    room.iov_len = sizeof text;
    CHECK(icn_recvmsg(from, &request, 0) == (ssize_t)sizeof parameters);
    CHECK(strcmp(text, parameters) == 0);
    CHECK(strncmp(asked.sicn_name, "/p/reverse/params-sha256=", 25) == 0);
    CHECK(!is_readable(from, 0));
    /* Without parameters; outside of the prefix; larger than a packet. */
    message.msg_iovlen = 0;
    CHECK(icn_sendmsg(to, &message, 0) == 0);
    request.msg_namelen = sizeof asked;
    CHECK(icn_recvmsg(from, &request, 0) == 0);
    CHECK(strcmp(asked.sicn_name, "/p/reverse") == 0);
    address = name_of("/q");
    FAILS(icn_sendmsg(to, &message, 0), EINVAL);
    address = name_of("/p/large");
    piece.iov_base = large;
    piece.iov_len = 10000;
    message.msg_iovlen = 1;
    FAILS(icn_sendmsg(to, &message, 0), EMSGSIZE);
    free(large);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
}

static void forked(void)
{
    char octet;
    int status, from = producer("/p"), to = consumer("/p");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(get(to, "/p/a", &octet, 1, 0), EPERM);
        FAILS(publish(from, "/p/a", "a", 1, 0), EPERM);
        FAILS(icn_socket(AF_ICN, SOCK_CONS, 0), EPERM);
        FAILS(icn_close(to), EPERM);
        CHECK(close(to) == 0);
        CHECK(close(from) == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* The parent process is not affected. */
    CHECK(publish(from, "/p/a", "a", 1, 0) == 1);
    check_get(to, "/p/a", "a", 1, 1);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
}

static volatile sig_atomic_t handled_by;

static void handle(int number)
{
    (void)number;
    handled_by = (sig_atomic_t)syscall(SYS_gettid);
}

static void signals(void)
{
    struct sigaction action;
    struct waiting got;
    sigset_t all, before;
    int from = producer("/p"), to = consumer("/p");
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    start(&got, to, "/p/late");
    /* The other threads block the signal, so this thread handles it and continues. */
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    while (handled_by == 0)
        usleep(1000);
    CHECK(handled_by == (sig_atomic_t)got.id);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(publish(from, "/p/late", "late", 4, 0) == 4);
    end(&got);
    CHECK(got.result == 4);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
}

int main(int argc, char **argv)
{
    static const struct check checks[] = {
        {"arguments", arguments}, {"errors", errors},       {"no-router", no_router},
        {"options", options},     {"objects", objects},     {"threads", threads},
        {"poll", polling},        {"interests", interests}, {"fork", forked},
        {"signals", signals},
    };
    return run_check(argc, argv, checks, sizeof checks / sizeof *checks);
}
