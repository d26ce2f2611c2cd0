/* Checks of growing objects, and of answers to Interests: live CHECK. */
#define _GNU_SOURCE
#include "check.h"

static ssize_t more(int fd, const char *name, const char *text)
{
    return publish(fd, name, text, strlen(text), ICN_MORE);
}

/* Reads one part, which is available or will be. */
static void check_piece_there(int fd, const char *name, const char *wanted, int flags)
{
    char octets[100];
    ssize_t count = get(fd, name, octets, sizeof octets, flags);
    CHECK(count == (ssize_t)strlen(wanted));
    CHECK(memcmp(octets, wanted, (size_t)count) == 0);
}

#define check_piece(...) (called_at = __LINE__, check_piece_there(__VA_ARGS__))

static void growing(void)
{
    char octet, *large = content(100000);
    struct waiting got;
    int from = producer("/p"), all = consumer("/p"), newest = consumer("/p");
    /* The object has started and has no parts. */
    CHECK(more(from, "/p/live", "") == 0);
    FAILS(get(all, "/p/live", &octet, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(more(from, "/p/live", "one") == 3);
    CHECK(is_readable(all, -1));
    check_piece(all, "/p/live", "one", MSG_DONTWAIT);
    FAILS(get(all, "/p/live", &octet, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(!is_readable(all, 0));
    /* A new part wakes a waiting reader. */
    start(&got, all, "/p/live");
    CHECK(more(from, "/p/live", "two") == 3);
    end(&got);
    CHECK(got.result == 3 && memcmp(got.octets, "two", 3) == 0);
    /* Another reader starts with the newest part, while another object grows. */
    usleep(20000);
    check_piece(newest, "/p/live", "two", ICN_NEWEST);
    CHECK(publish(from, "/p/large", large, 100000, ICN_MORE) == 100000);
    start(&got, newest, "/p/live");
    CHECK(publish(from, "/p/live", "three", 5, 0) == 5);
    end(&got);
    CHECK(got.result == 5);
    check_get(newest, "/p/live", "", 0, 1);
    check_get(all, "/p/live", "three", 5, 100);
    check_get(all, "/p/live", "onetwothree", 11, 100);
    /* Publishing under the same name again creates another object. */
    CHECK(publish(from, "/p/live", "four", 4, 0) == 4);
    usleep(20000);
    check_get(all, "/p/live", "four", 4, 100);
    CHECK(publish(from, "/p/large", NULL, 0, 0) == 0);
    check_get(all, "/p/large", large, 100000, 5000);
    /* With ICN_NEWEST, an object that does not grow is read from its last segment. */
    CHECK(publish(from, "/p/whole", large, 16001, 0) == 16001);
    check_piece(newest, "/p/whole", (char[]){large[16000], 0}, ICN_NEWEST);
    check_get(newest, "/p/whole", "", 0, 1);
    free(large);
    /* Invalid calls. */
    FAILS(get(newest, "/p/live/v=1", &octet, 1, ICN_NEWEST), EINVAL);
    CHECK(set(newest, "range=1") == 0);
    FAILS(get(newest, "/p/live", &octet, 1, ICN_NEWEST), EINVAL);
    FAILS(publish(from, "/p/live", "", 0, ICN_MORE | ICN_REFUSE), EINVAL);
    FAILS(publish(from, "/q/live", "", 0, ICN_MORE), EINVAL);
    FAILS(publish(all, "/p/live", "", 0, ICN_MORE), EOPNOTSUPP);
    FAILS(get(from, "/p/live", &octet, 1, ICN_NEWEST), EOPNOTSUPP);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(all) == 0);
    CHECK(icn_close(newest) == 0);
}

/* A producer that starts again leaves the readers of the old object without an end. */
static void abandoned(void)
{
    char octet;
    int from = producer("/p"), to = consumer("/p");
    CHECK(set(to, "lifetime=100ms") == 0);
    CHECK(more(from, "/p/live", "one") == 3);
    check_piece(to, "/p/live", "one", 0);
    CHECK(icn_close(from) == 0);
    from = producer("/p");
    CHECK(more(from, "/p/live", "other") == 5);
    FAILS(get(to, "/p/live", &octet, 1, 0), ECONNRESET);
    check_piece(to, "/p/live", "other", 0);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
}

/* A slow reader continues with the newest part, which is reported. */
static void skipping(void)
{
    enum { SIZE = 8000, COUNT = 200 };
    char *octets = content(SIZE), *room = malloc(SIZE);
    struct sockaddr_icn address = name_of("/p/live");
    struct iovec piece = {room, SIZE};
    struct msghdr message = {0};
    int from = producer("/p"), to = consumer("/p"), jumps = 0;
    CHECK(set(to, "behind=skip") == 0);
    CHECK(set(to, "input_buffer=64KiB") == 0);
    message.msg_name = &address;
    message.msg_namelen = sizeof address;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    for (int at = 0; at < COUNT; at++) {
        memcpy(octets, &at, sizeof at);
        CHECK(publish(from, "/p/live", octets, SIZE, ICN_MORE) == SIZE);
        if (at == 0) {
            CHECK(icn_recvmsg(to, &message, 0) == SIZE);
            CHECK(message.msg_flags == 0);
        }
    }
    for (int next = 1, at; next < COUNT; next = at + 1) {
        CHECK(icn_recvmsg(to, &message, 0) == SIZE);
        memcpy(&at, room, sizeof at);
        CHECK(at >= next && at < COUNT);
        CHECK(message.msg_flags == (at > next ? ICN_MISSED : 0));
        jumps += at > next;
    }
    CHECK(jumps > 0);
    free(octets);
    free(room);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
}

/* Gets the offer of a published name. Returns its length. */
static socklen_t offer_of(int fd, const char *name, char *offer, socklen_t room)
{
    CHECK(strlen(name) < room);
    strcpy(offer, name);
    CHECK(icn_getsockopt(fd, SOL_ICN, ICN_OFFER, offer, &room) == 0);
    return room;
}

/* A message with one buffer and, if wanted, space for one name as a control message. */
struct letter {
    struct sockaddr_icn name;
    struct iovec piece;
    struct msghdr header;
    char octets[4000];
    union {
        size_t aligned;
        char octets[CMSG_SPACE(sizeof(struct sockaddr_icn))];
    } control;
};

static struct msghdr *letter(struct letter *self, const char *name, size_t len)
{
    self->name = name_of(name);
    self->piece = (struct iovec){self->octets, len};
    memset(&self->header, 0, sizeof self->header);
    self->header.msg_name = &self->name;
    self->header.msg_namelen = sizeof self->name;
    self->header.msg_iov = &self->piece;
    self->header.msg_iovlen = 1;
    return &self->header;
}

static struct msghdr *room_with_control(struct letter *self)
{
    letter(self, "", sizeof self->octets);
    self->header.msg_control = &self->control;
    self->header.msg_controllen = sizeof self->control;
    return &self->header;
}

/* A consumer offers content. The server fetches it and confirms. */
static void offers(void)
{
    static struct letter sent, asked, answer;
    struct sockaddr_icn offered;
    char *octets = content(50000), small[4];
    int own = producer("/client"), to = icn_socket(AF_ICN, SOCK_CONS, 0);
    int from = icn_socket(AF_ICN, SOCK_PROD, 0), pull = consumer("/client");
    CHECK(set(to, "lifetime=60s") == 0);
    CHECK(set(from, "request_wait=60s") == 0);
    CHECK(bind_to(to, "/p") == 0);
    CHECK(bind_to(from, "/p") == 0);
    CHECK(publish(own, "/client/data", octets, 50000, 0) == 50000);
    socklen_t len = offer_of(own, "/client/data", sent.octets, sizeof sent.octets);
    FAILS(icn_recvmsg(to, letter(&answer, "/p/put", 100), ICN_ANSWER), ENOMSG);
    CHECK(icn_sendmsg(to, letter(&sent, "/p/put", len), ICN_ANSWER) == (ssize_t)len);
    FAILS(icn_recvmsg(to, letter(&answer, "/p/put", 100), ICN_ANSWER | MSG_DONTWAIT), EAGAIN);
    /* The server. */
    CHECK(icn_recvmsg(from, room_with_control(&asked), 0) == (ssize_t)len);
    CHECK(memcmp(asked.octets, sent.octets, len) == 0);
    CHECK(asked.header.msg_flags == 0);
    struct cmsghdr *control = CMSG_FIRSTHDR(&asked.header);
    CHECK(control != NULL);
    CHECK(control->cmsg_level == SOL_ICN && control->cmsg_type == ICN_OFFER);
    CHECK(control->cmsg_len == CMSG_LEN(sizeof offered));
    memcpy(&offered, CMSG_DATA(control), sizeof offered);
    CHECK(offered.sicn_family == AF_ICN);
    CHECK(strncmp(offered.sicn_name, "/client/data/", 13) == 0);
    CHECK(CMSG_NXTHDR(&asked.header, control) == NULL);
    check_get(pull, offered.sicn_name, octets, 50000, 5000);
    FAILS(publish(from, "/p/nobody-asked", "x", 1, ICN_ANSWER), ENOMSG);
    CHECK(publish(from, asked.name.sicn_name, "taken", 5, ICN_ANSWER) == 5);
    FAILS(publish(from, asked.name.sicn_name, "taken", 5, ICN_ANSWER), ENOMSG);
    /* The consumer gets the answer. A buffer that is too small loses nothing. */
    CHECK(is_readable(to, -1));
    FAILS(get(to, "/p/put", small, sizeof small, ICN_ANSWER), EMSGSIZE);
    CHECK(is_readable(to, 0));
    CHECK(icn_recvmsg(to, letter(&answer, "/p/put", 100), ICN_ANSWER) == 5);
    CHECK(answer.header.msg_flags == ICN_UNVERIFIED);
    CHECK(memcmp(answer.octets, "taken", 5) == 0);
    CHECK(!is_readable(to, 0));
    FAILS(get(to, "/p/put", small, sizeof small, ICN_ANSWER), ENOMSG);
    /* No space for the offered name; parameters that are not an offer; a refused offer. */
    CHECK(icn_sendmsg(to, letter(&sent, "/p/again", len), ICN_ANSWER) == (ssize_t)len);
    CHECK(icn_recvmsg(from, letter(&asked, "", sizeof asked.octets), 0) == (ssize_t)len);
    CHECK(asked.header.msg_flags == MSG_CTRUNC);
    CHECK(publish(from, asked.name.sicn_name, "", 0, ICN_ANSWER) == 0);
    CHECK(get(to, "/p/again", small, sizeof small, ICN_ANSWER) == 0);
    memset(sent.octets, 'x', 10);
    CHECK(icn_sendmsg(to, letter(&sent, "/p/bad", 10), ICN_ANSWER) == 10);
    CHECK(icn_recvmsg(from, room_with_control(&asked), 0) == 10);
    CHECK(asked.header.msg_controllen == 0 && asked.header.msg_flags == 0);
    CHECK(publish(from, asked.name.sicn_name, NULL, 0, ICN_REFUSE) == 0);
    FAILS(get(to, "/p/bad", small, sizeof small, ICN_ANSWER), ENETUNREACH);
    /* No answer in time; an unpublished name cannot be offered. */
    CHECK(set(to, "lifetime=50ms") == 0);
    CHECK(icn_sendmsg(to, letter(&sent, "/p/silence", 10), ICN_ANSWER) == 10);
    FAILS(get(to, "/p/silence", small, sizeof small, ICN_ANSWER), ETIMEDOUT);
    strcpy(sent.octets, "/client/none");
    len = sizeof sent.octets;
    FAILS(icn_getsockopt(own, SOL_ICN, ICN_OFFER, sent.octets, &len), ENOENT);
    FAILS(icn_getsockopt(to, SOL_ICN, ICN_OFFER, sent.octets, &len), EOPNOTSUPP);
    strcpy(sent.octets, "/client/data");
    len = 20;
    FAILS(icn_getsockopt(own, SOL_ICN, ICN_OFFER, sent.octets, &len), EMSGSIZE);
    free(octets);
    CHECK(icn_close(own) == 0);
    CHECK(icn_close(to) == 0);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(pull) == 0);
}

/* A socket with hICN names. */
static int mapped(int type, const char *prefix, const char *mapping)
{
    int fd = icn_socket(AF_ICN, type, 0);
    CHECK(fd >= 0);
    CHECK(set(fd, mapping) == 0);
    if (type == SOCK_PROD) {
        CHECK(set(fd, "signature_format=hicn") == 0);
        CHECK(set(fd, "request_wait=60s") == 0);
    }
    CHECK(bind_to(fd, prefix) == 0);
    return fd;
}

/* Everything above with the names and signatures of hICN. */
static void hicn(void)
{
    static const char server[] = "mapping=hicn:2001:db8:7::/48";
    static const char client[] = "mapping=hicn:2001:db8:8::/48";
    static struct letter sent, asked, answer;
    struct sockaddr_icn offered;
    struct waiting got;
    char *octets = content(50000);
    int from = mapped(SOCK_PROD, "/p", server), to = mapped(SOCK_CONS, "/p", server);
    int own = mapped(SOCK_PROD, "/client", client), pull = mapped(SOCK_CONS, "/client", client);
    int direct = mapped(SOCK_PROD, "hicn:b001::/16", "mapping=hicn:b001::/16"), other;
    CHECK(publish(from, "/p/a", octets, 50000, 0) == 50000);
    check_get(to, "/p/a", octets, 50000, 5000);
    CHECK(more(from, "/p/live", "one") == 3);
    check_piece(to, "/p/live", "one", ICN_NEWEST);
    CHECK(publish(from, "/p/live", "two", 3, 0) == 3);
    check_get(to, "/p/live", "two", 3, 100);
    /* A request names what is not published yet. */
    start(&got, to, "/p/later");
    CHECK(icn_recvmsg(from, letter(&asked, "", sizeof asked.octets), 0) == 0);
    CHECK(strcmp(asked.name.sicn_name, "/p/later") == 0);
    CHECK(publish(from, "/p/later", "late", 4, 0) == 4);
    end(&got);
    CHECK(got.result == 4);
    /* An offer, and its answer. */
    CHECK(publish(own, "/client/data", octets, 50000, 0) == 50000);
    socklen_t len = offer_of(own, "/client/data", sent.octets, sizeof sent.octets);
    CHECK(icn_sendmsg(to, letter(&sent, "/p/put", len), ICN_ANSWER) == (ssize_t)len);
    CHECK(icn_recvmsg(from, room_with_control(&asked), 0) == (ssize_t)len);
    CHECK(strcmp(asked.name.sicn_name, "/p/put") == 0);
    memcpy(&offered, CMSG_DATA(CMSG_FIRSTHDR(&asked.header)), sizeof offered);
    CHECK(strncmp(offered.sicn_name, "/client/data/", 13) == 0);
    check_get(pull, offered.sicn_name, octets, 50000, 5000);
    CHECK(publish(from, asked.name.sicn_name, "taken", 5, ICN_ANSWER) == 5);
    CHECK(icn_recvmsg(to, letter(&answer, "/p/put", 100), ICN_ANSWER) == 5);
    CHECK(memcmp(answer.octets, "taken", 5) == 0);
    /* An object at an address has only segments. */
    CHECK(publish(direct, "hicn:b001::1", octets, 50000, 0) == 50000);
    FAILS(publish(direct, "hicn:b001::1", "x", 1, ICN_MORE), EINVAL);
    FAILS(publish(direct, "hicn:b002::1", "x", 1, 0), EINVAL);
    /* hICN's signatures need hICN names. */
    other = icn_socket(AF_ICN, SOCK_PROD, 0);
    CHECK(set(other, "signature_format=hicn") == 0);
    FAILS(bind_to(other, "/q"), EINVAL);
    free(octets);
    CHECK(icn_close(other) == 0);
    CHECK(icn_close(direct) == 0);
    CHECK(icn_close(own) == 0);
    CHECK(icn_close(pull) == 0);
    CHECK(icn_close(from) == 0);
    CHECK(icn_close(to) == 0);
}

int main(int argc, char **argv)
{
    static const struct check checks[] = {
        {"growing", growing},
        {"abandoned", abandoned},
        {"skipping", skipping},
        {"offers", offers},
        {"hicn", hicn},
    };
    return run_check(argc, argv, checks, sizeof checks / sizeof *checks);
}
