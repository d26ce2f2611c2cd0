/* Checks of icn_close while other threads are within calls: closing CHECK. */
#define _GNU_SOURCE
#include "check.h"
#include <sys/socket.h>
#include <sys/un.h>

static void close_while_waiting(void)
{
    struct waiting asked, asked_too, got;
    int from = producer("/p"), to = consumer("/p");
    start(&asked, from, NULL);
    start(&asked_too, from, NULL);
    CHECK(icn_close(from) == 0);
    end(&asked);
    CHECK(asked.result == -1 && asked.error == EBADF);
    end(&asked_too);
    CHECK(asked_too.result == -1 && asked_too.error == EBADF);
    from = producer("/p");
    start(&got, to, "/p/never");
    CHECK(icn_close(to) == 0);
    end(&got);
    CHECK(got.result == -1 && got.error == EBADF);
    CHECK(icn_close(from) == 0);
}

static ssize_t bind_there(struct waiting *self)
{
    return bind_to(self->fd, self->name);
}

static ssize_t publish_there(struct waiting *self)
{
    char *octets = content(self->len);
    ssize_t result = publish(self->fd, self->name, octets, self->len, 0);
    int error = errno;
    free(octets);
    errno = error;
    return result;
}

/* A router that takes so many connections and says nothing; its path. */
static int silent_router(char *path, int connections)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(path, "/tmp/weir-silent-XXXXXX");
    CHECK(mkdtemp(path) != NULL);
    strcat(path, "/r");
    strcpy(address.sun_path, path);
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(fd, connections) == 0);
    return fd;
}

static void remove_router(int fd, char *path)
{
    CHECK(close(fd) == 0);
    CHECK(unlink(path) == 0);
    *strrchr(path, '/') = '\0';
    CHECK(rmdir(path) == 0);
}

/* Closes a socket while a thread binds it. */
static void close_while_binding(int type, const char *path)
{
    struct waiting bound = {.call = bind_there, .name = "/p"};
    char option[128];
    bound.fd = icn_socket(AF_ICN, type, 0);
    CHECK(bound.fd >= 0);
    snprintf(option, sizeof option, "router=%s", path);
    CHECK(set(bound.fd, option) == 0);
    start_call(&bound);
    /* It may not have begun: then another may be chosen still. */
    while (!bound.is_done && set(bound.fd, option) == 0)
        usleep(1000);
    CHECK(errno == EINVAL);
    FAILS(bind_to(bound.fd, "/p"), EINVAL);
    CHECK(!is_readable(bound.fd, 0));
    CHECK(icn_close(bound.fd) == 0);
    end(&bound);
    CHECK(bound.result == -1 && bound.error == EBADF);
}

static void binding(void)
{
    char path[64];
    /* The router does not register the prefix; each time it is free again. */
    int router = silent_router(path, 100), full;
    for (int count = 0; count < 5; count++)
        close_while_binding(SOCK_PROD, path);
    remove_router(router, path);
    /* The router does not even take the connection. */
    router = silent_router(path, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    do {
        full = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        CHECK(full >= 0);
    } while (connect(full, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(errno == EAGAIN);
    close_while_binding(SOCK_CONS, path);
    close_while_binding(SOCK_PROD, path);
    /* Others are not held up. */
    int from = producer("/p"), to = consumer("/p");
    CHECK(publish(from, "/p/a", "a", 1, 0) == 1);
    check_get(to, "/p/a", "a", 1, 1);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
    remove_router(router, path);
}

static volatile sig_atomic_t handled_by;

static void handle(int number)
{
    (void)number;
    handled_by = (sig_atomic_t)syscall(SYS_gettid);
}

/* Signing takes long; it ends when the socket is closed, and lets signals in before. */
static void publishing(void)
{
    struct waiting published = {.call = publish_there, .name = "/p/large", .len = 60000000};
    struct sigaction action;
    sigset_t all, before;
    int from = icn_socket(AF_ICN, SOCK_PROD, 0);
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(set(from, "segment_size=100") == 0);
    CHECK(set(from, "output_buffer=1GiB") == 0);
    CHECK(bind_to(from, "/p") == 0);
    published.fd = from;
    start_call(&published);
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    while (handled_by == 0)
        usleep(1000);
    CHECK(handled_by == (sig_atomic_t)published.id);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(icn_close(from) == 0);
    end(&published);
    CHECK(published.result == -1 && published.error == EBADF);
    /* The prefix is free then. */
    CHECK(icn_close(producer("/p")) == 0);
}

int main(int argc, char **argv)
{
    static const struct check checks[] = {
        {"receiving", close_while_waiting},
        {"binding", binding},
        {"publishing", publishing},
    };
    return run_check(argc, argv, checks, sizeof checks / sizeof *checks);
}
