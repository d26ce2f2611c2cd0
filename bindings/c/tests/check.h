/* Helpers of the checks. A program passes its checks to run_check. Define _GNU_SOURCE. */
#ifndef WEIR_CHECK_H
#define WEIR_CHECK_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/socket.h>

/* Source location of the last call of a checking function below. */
static int called_at;

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d, called at %d: %s (errno %d: %s)\n", __FILE__, __LINE__,        \
                    called_at, #what, errno, strerror(errno));                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define FAILS(what, number)                                                                        \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((what) == -1);                                                                       \
        CHECK(errno == (number));                                                                  \
    } while (0)

#define ADDRESS(address) ((struct sockaddr *)&(address)), (socklen_t)sizeof(address)

static inline struct sockaddr_icn name_of(const char *text)
{
    struct sockaddr_icn address = {AF_ICN, ""};
    strncpy(address.sicn_name, text, sizeof address.sicn_name - 1);
    return address;
}

static inline int bind_to(int fd, const char *text)
{
    struct sockaddr_icn address = name_of(text);
    return icn_bind(fd, ADDRESS(address));
}

static inline int set(int fd, const char *option)
{
    return icn_setsockopt(fd, SOL_ICN, ICN_OPTION, option, (socklen_t)strlen(option));
}

static inline ssize_t publish(int fd, const char *text, const void *octets, size_t len, int flags)
{
    struct sockaddr_icn address = name_of(text);
    return icn_sendto(fd, octets, len, flags, ADDRESS(address));
}

static inline ssize_t get(int fd, const char *text, void *octets, size_t len, int flags)
{
    struct sockaddr_icn address = name_of(text);
    socklen_t address_len = sizeof address;
    return icn_recvfrom(fd, octets, len, flags, (struct sockaddr *)&address, &address_len);
}

static inline int producer(const char *prefix)
{
    int fd = icn_socket(AF_ICN, SOCK_PROD, PROD_REL);
    CHECK(fd >= 0);
    CHECK(bind_to(fd, prefix) == 0);
    return fd;
}

static inline int consumer(const char *prefix)
{
    int fd = icn_socket(AF_ICN, SOCK_CONS, CONS_REL);
    CHECK(fd >= 0);
    CHECK(bind_to(fd, prefix) == 0);
    return fd;
}

/* Reads everything, at most `piece` bytes at a time. */
static inline void check_get_there(int fd, const char *text, const char *wanted, size_t len, size_t piece)
{
    char *octets = malloc(len + piece);
    size_t total = 0;
    ssize_t count;
    CHECK(octets != NULL);
    while ((count = get(fd, text, octets + total, piece, 0)) > 0) {
        total += (size_t)count;
        CHECK(total <= len);
    }
    CHECK(count == 0);
    CHECK(total == len);
    CHECK(memcmp(octets, wanted, len) == 0);
    free(octets);
}

#define check_get(...) (called_at = __LINE__, check_get_there(__VA_ARGS__))

static inline char *content(size_t len)
{
    char *octets = malloc(len);
    unsigned number = (unsigned)len;
    CHECK(octets != NULL);
    for (size_t at = 0; at < len; at++) {
        number = number * 1664525u + 1013904223u;
        octets[at] = (char)(number >> 24);
    }
    return octets;
}

static inline int is_readable(int fd, int wait_ms)
{
    struct pollfd looked = {fd, POLLIN, 0};
    int count = poll(&looked, 1, wait_ms);
    CHECK(count >= 0);
    return count == 1 && (looked.revents & POLLIN) != 0;
}

/* Number of threads with that name. */
static inline int threads_named(const char *name)
{
    char path[300], line[32];
    int count = 0;
    DIR *all = opendir("/proc/self/task");
    CHECK(all != NULL);
    for (struct dirent *one = readdir(all); one != NULL; one = readdir(all)) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", one->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL && fgets(line, sizeof line, file) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            count += strcmp(line, name) == 0;
        }
        if (file != NULL)
            fclose(file);
    }
    closedir(all);
    return count;
}

/* Joined threads may be visible for a moment longer. */
static inline void threads_named_become(const char *name, int count)
{
    for (int tries = 0; tries < 60000 && threads_named(name) != count; tries++)
        usleep(1000);
    CHECK(threads_named(name) == count);
}

/* A thread inside a call, and the result of the call. */
struct waiting {
    pthread_t thread;
    ssize_t (*call)(struct waiting *);
    int fd;
    const char *name;
    size_t len;
    volatile pid_t id;
    volatile sig_atomic_t is_done;
    ssize_t result;
    int error;
    char octets[100];
};

/* Reads an object, or a request if there is no name. */
static inline ssize_t receive(struct waiting *self)
{
    struct sockaddr_icn address;
    struct msghdr message = {0};
    message.msg_name = &address;
    message.msg_namelen = sizeof address;
    return self->name != NULL ? get(self->fd, self->name, self->octets, sizeof self->octets, 0)
                              : icn_recvmsg(self->fd, &message, 0);
}

static inline void *wait_there(void *of)
{
    struct waiting *self = of;
    self->id = (pid_t)syscall(SYS_gettid);
    self->result = self->call(self);
    self->error = errno;
    self->is_done = 1;
    return NULL;
}

/* Starts a thread with a call. Returns when the call sleeps or has ended. */
static inline void start_call(struct waiting *self)
{
    char path[64], line[256];
    CHECK(pthread_create(&self->thread, NULL, wait_there, self) == 0);
    for (;;) {
        const char *state = NULL;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)self->id);
        FILE *file = self->id != 0 ? fopen(path, "r") : NULL;
        if (file != NULL && fgets(line, sizeof line, file) != NULL)
            state = strrchr(line, ')');
        if (file != NULL)
            fclose(file);
        if (self->is_done || (state != NULL && state[2] == 'S'))
            return;
        usleep(1000);
    }
}

/* Like start, with a thread that reads an object or a request. */
static inline void start(struct waiting *self, int fd, const char *name)
{
    *self = (struct waiting){.call = receive, .fd = fd, .name = name};
    start_call(self);
}

static inline void end(struct waiting *self)
{
    CHECK(pthread_join(self->thread, NULL) == 0);
    errno = self->error;
}

/* A named check. */
struct check {
    const char *name;
    void (*run)(void);
};

/* The arguments after the name of the check. */
static char **given;

/* Runs the check named in argv. Prints "ok" at the end. */
static inline int run_check(int argc, char **argv, const struct check *checks, size_t count)
{
    for (size_t at = 0; argc >= 2 && at < count; at++)
        if (strcmp(argv[1], checks[at].name) == 0) {
            given = argv + 2;
            checks[at].run();
            printf("ok\n");
            return 0;
        }
    fprintf(stderr, "%s CHECK\n", argv[0]);
    return 2;
}

#endif
