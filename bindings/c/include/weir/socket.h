/*
 * Weir: sockets for named data (NDN).
 *
 * A consumer socket gets what has a name; a producer socket publishes under names. All functions
 * return what their POSIX namesakes return: -1 with errno for a failure. README.md has the table of
 * errors and of options.
 *
 * All functions may be called from several threads at once. None calls back into the application,
 * and no signal handler runs in a thread of the library. A call that a signal interrupts goes on.
 */
#ifndef WEIR_SOCKET_H
#define WEIR_SOCKET_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Domain of icn_socket, and family of addresses. */
#define AF_ICN 20041

/* Types of icn_socket; SOCK_NONBLOCK and SOCK_CLOEXEC (always on) may be added. */
#define SOCK_CONS 101 /* gets what others publish */
#define SOCK_PROD 102 /* publishes */

/* Protocols of icn_socket; 0 is the reliable one. */
#define CONS_REL 1   /* what is lost is asked for again */
#define CONS_UNREL 2 /* everything is asked for once; what does not come is passed over */
#define PROD_REL 3   /* what the output buffer has no memory for goes to the option disk, if set */
#define PROD_UNREL 4 /* never to a disk: what leaves memory is lost, as suits live content */

/* Level of options and of control messages. */
#define SOL_ICN 20041
#define ICN_OPTION 1 /* of icn_setsockopt and icn_getsockopt */
#define ICN_OFFER 2  /* of icn_getsockopt, and type of a control message: see icn_recvmsg */

/* Flags of a producer's icn_sendto and icn_sendmsg; at most one of them. */
#define ICN_MORE 0x01000000   /* the object grows: more will follow under this name */
#define ICN_ANSWER 0x04000000 /* one Data, for the Interest of that name that icn_recvmsg told of */
#define ICN_REFUSE 0x10000000 /* there will be nothing under this name */

/* Flags of a consumer's icn_recvfrom and icn_recvmsg, and ICN_ANSWER again: the answer to an
 * Interest that icn_sendmsg sent with that flag. */
#define ICN_NEWEST 0x02000000 /* if this call begins: with the newest segment, not the first */

/* In msg_flags after icn_recvmsg. */
#define ICN_MISSED 0x08000000     /* something was passed over before these octets */
#define ICN_UNVERIFIED 0x20000000 /* not all that came was verified, as options allowed */

/* A name, as an NDN URI such as "/site/file" that ends with a zero octet. */
struct sockaddr_icn {
    sa_family_t sicn_family; /* AF_ICN */
    char sicn_name[1024];
};

/* Makes a socket. The descriptor is for these functions and for poll, select, epoll and fcntl
 * (O_NONBLOCK) alone: POLLIN says that icn_recvfrom or icn_recvmsg would not wait. */
int icn_socket(int domain, int type, int protocol);

/* Binds to a name: what is below it is got or published by this socket. Connects to the router
 * that `weir get` would find, or to that of the option "router". A producer waits until the router
 * has registered the prefix. */
int icn_bind(int fd, const struct sockaddr *addr, socklen_t addrlen);

/* Changes an option by the text "name=value". A producer's options, and "router", are for before
 * icn_bind; a consumer's are those of what it begins to get from then on. Besides those of
 * docs/socket-options.md there are:
 *   "router=ADDRESS"       the router: "unix:///run/nfd/nfd.sock", a path, "tcp://host"; "default"
 *   "sign=KEY"             producer: one of the user's keys, by its name, its identity's or its
 *                          certificate's; "default"; "digest": none
 *   "anchors=FILE:FILE"    consumer: with these certificates their owners, and whom they certify,
 *                          are believed of what is below their names, and nobody else; "": none
 *   "allow_unsigned=true"  consumer: a digest will do for a signature
 *   "range=FIRST,COUNT"    consumer: so many octets from that one on, as far as there are any;
 *                          "range=FIRST": to the end. Reading begins at FIRST. */
int icn_setsockopt(int fd, int level, int optname, const void *optval, socklen_t optlen);

/* The value of an option; for ICN_OFFER see icn_recvmsg. On entry optval holds its name, with the zero octet, and *optlen is the
 * room; then optval holds the value as text, with a zero octet, and *optlen counts both. */
int icn_getsockopt(int fd, int level, int optname, void *optval, socklen_t *optlen);

/* Producer: publishes len octets as the new version of a name, or as the one that the name ends
 * with; returns len. They have been signed then, and whoever asks gets them until they leave the
 * output buffer. With the flag ICN_REFUSE
 * instead, whoever asks for the name now is told that there is nothing.
 *
 * With the flag ICN_MORE the octets are the next part of an object that grows, such as a log or a
 * stream; the first such call begins it, perhaps with no octets. Readers get each part at once, as
 * octets in order without bounds between them. The first call without the flag ends it, with its
 * octets as the last part, if any. A socket that is closed before leaves it without an end: readers
 * find out later (ECONNRESET, ETIMEDOUT). */
ssize_t icn_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr,
                   socklen_t addrlen);

/* Consumer: octets of what the name says, in order, in as many calls as the buffer needs; 0 is the
 * end. A call after the end, or after an error, begins anew. Each name has its own place, so that
 * several may be got at once. The flag MSG_DONTWAIT: what there is, or EAGAIN. Of an object that
 * grows, it waits for what is not made yet, or says EAGAIN and poll tells when it is there; with
 * ICN_NEWEST it begins with the part made last. Whoever is too slow goes on in order, or with the
 * newest: option "behind". With ICN_ANSWER: the content of the answer to an Interest. */
ssize_t icn_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *src_addr,
                     socklen_t *addrlen);

/* Producer: as icn_sendto, to msg_name. Consumer: sends one Interest for msg_name, once, with the
 * octets, if any, as its parameters. With ICN_ANSWER its answer is kept for icn_recvmsg or
 * icn_recvfrom of that name, with that flag; it comes within the option "lifetime" or not at all.
 * Without, it is dropped. */
ssize_t icn_sendmsg(int fd, const struct msghdr *msg, int flags);

/* Consumer: as icn_recvfrom, of msg_name. Answers are not verified, and must fit. Producer: waits
 * for an Interest for what is not published; its name is put into msg_name, its parameters into the
 * buffers. Publish it, answer it or refuse it. Where they have no room: EMSGSIZE, and the next call
 * gets the same.
 *
 * A consumer cannot publish, but it can offer: icn_getsockopt of a producer of its own with
 * ICN_OFFER (a name before, its offer after) has octets that icn_sendmsg sends to a server. There
 * they are the parameters of a request, with a control message: level SOL_ICN, type ICN_OFFER, data
 * a struct sockaddr_icn, the name to get what is offered by. The server gets it with a consumer of
 * its own and answers with ICN_ANSWER. Without room for the control message: MSG_CTRUNC. */
ssize_t icn_recvmsg(int fd, struct msghdr *msg, int flags);

/* Closes the socket. All other calls that wait on it, or are signing, return with EBADF; when they
 * have, its prefix is free. What was published is forgotten. */
int icn_close(int fd);

#ifdef __cplusplus
}
#endif

#endif
