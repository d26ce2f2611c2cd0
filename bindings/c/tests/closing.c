/* Checks of icn_close while other threads are inside calls: closing CHECK. */
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

/* Starts a router that accepts some connections and never answers. Returns its path. */
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

/* Like silent_router, with a full backlog. */
static int full_router(char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int router = silent_router(path, 0), full;
    strcpy(address.sun_path, path);
    do {
        full = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        CHECK(full >= 0);
    } while (connect(full, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(errno == EAGAIN);
    return router;
}

static int set_router(int fd, const char *path)
{
    char option[128];
    snprintf(option, sizeof option, "router=%s", path);
    return set(fd, option);
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
    bound.fd = icn_socket(AF_ICN, type, 0);
    CHECK(bound.fd >= 0);
    CHECK(set_router(bound.fd, path) == 0);
    start_call(&bound);
    /* If the call has not started yet, another prefix may still be chosen. */
    while (!bound.is_done && set_router(bound.fd, path) == 0)
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
    /* The router does not register the prefix, which is free again each time. */
    int router = silent_router(path, 100), kept = icn_socket(AF_ICN, SOCK_CONS, 0);
    /* Keep the shared session open. Otherwise the prefix would always be free. */
    CHECK(set_router(kept, path) == 0);
    CHECK(bind_to(kept, "/p") == 0);
    for (int count = 0; count < 5; count++)
        close_while_binding(SOCK_PROD, path);
    CHECK(icn_close(kept) == 0);
    remove_router(router, path);
    /* The router does not even accept the connection. */
    router = full_router(path);
    close_while_binding(SOCK_CONS, path);
    close_while_binding(SOCK_PROD, path);
    /* Other sockets are not delayed. */
    int from = producer("/p"), to = consumer("/p");
    CHECK(publish(from, "/p/a", "a", 1, 0) == 1);
    check_get(to, "/p/a", "a", 1, 1);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
    remove_router(router, path);
}

/* Connecting to a router that accepts no connection times out and leaves no thread behind. */
static void timing_out(void)
{
    char path[64];
    int router = full_router(path);
    for (int type = SOCK_CONS; type <= SOCK_PROD; type++) {
        int fd = icn_socket(AF_ICN, type, 0);
        CHECK(set_router(fd, path) == 0);
        FAILS(bind_to(fd, "/p"), ETIMEDOUT);
        CHECK(icn_close(fd) == 0);
        threads_named_become("icn", 0);
    }
    remove_router(router, path);
}

static volatile sig_atomic_t handled_by;

static void handle(int number)
{
    (void)number;
    handled_by = (sig_atomic_t)syscall(SYS_gettid);
}

/* Signing takes long. It ends when the socket is closed, and lets signals in before. */
static void publishing(void)
{
    struct waiting published = {.call = publish_there, .name = "/p/large", .len = 60000000};
    struct sigaction action;
    sigset_t all, before;
    /* The other socket keeps the shared session. Otherwise the prefix would always be free. */
    int from = icn_socket(AF_ICN, SOCK_PROD, 0), kept = consumer("/p");
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
    /* Then the prefix is free. */
    CHECK(icn_close(producer("/p")) == 0);
    CHECK(icn_close(kept) == 0);
}

static volatile sig_atomic_t has_published, may_end;

/* The thread stays alive until the end: the C library blocks all signals when a thread ends. */
static ssize_t publish_often(struct waiting *self)
{
    ssize_t result = 0;
    for (int count = 0; count < 300 && result >= 0; count++)
        result = publish_there(self);
    int error = errno;
    has_published = 1;
    while (!may_end)
        usleep(1000);
    errno = error;
    return result < 0 ? -1 : 0;
}

/* The signals that a thread blocks, according to the kernel. */
static unsigned long long held_back(pid_t id)
{
    char path[64], line[256];
    unsigned long long signals = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)id);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "SigBlk: %llx", &signals) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return signals;
}

/* Short publications, and those that wait for a disk, let signals in as well. */
static void publishing_little(void)
{
    struct waiting published = {.call = publish_often, .name = "/p/small", .len = 60000};
    published.fd = producer("/p");
    CHECK(pthread_create(&published.thread, NULL, wait_there, &published) == 0);
    while (!has_published)
        CHECK(published.id == 0 || held_back(published.id) == 0);
    may_end = 1;
    end(&published);
    CHECK(published.result == 0);
    CHECK(icn_close(published.fd) == 0);
}

int main(int argc, char **argv)
{
    static const struct check checks[] = {
        {"receiving", close_while_waiting},
        {"binding", binding},
        {"publishing", publishing},
        {"timing-out", timing_out},
        {"publishing-little", publishing_little},
    };
    return run_check(argc, argv, checks, sizeof checks / sizeof *checks);
}
