/*
 * Weir: sockets for named data (NDN).
 *
 * A consumer socket fetches content by name. A producer socket publishes content under names. All
 * functions return what their POSIX counterparts return: -1 with errno on failure. README.md lists
 * errors and options.
 *
 * All functions may be called from several threads at once. None calls back into the application,
 * and no signal handler runs in a thread of the library. A call that is interrupted by a signal
 * continues.
 */
#ifndef WEIR_SOCKET_H
#define WEIR_SOCKET_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Domain of icn_socket, and address family. */
#define AF_ICN 20041

/* Types of icn_socket. SOCK_NONBLOCK may be added; SOCK_CLOEXEC is always on. */
#define SOCK_CONS 101 /* fetches what others publish */
#define SOCK_PROD 102 /* publishes */

/* Protocols of icn_socket; 0 selects the reliable one. */
#define CONS_REL 1   /* lost packets are requested again */
#define CONS_UNREL 2 /* each segment is requested once; missing ones are skipped */
#define PROD_REL 3   /* segments that leave the output buffer go to the option disk, if set */
#define PROD_UNREL 4 /* never uses a disk: segments that leave memory are lost (live content) */

/* Level of options and of control messages. */
#define SOL_ICN 20041
#define ICN_OPTION 1 /* of icn_setsockopt and icn_getsockopt */
#define ICN_OFFER 2  /* of icn_getsockopt, and type of a control message: see icn_recvmsg */

/* Flags of a producer's icn_sendto and icn_sendmsg; at most one of them. */
#define ICN_MORE 0x01000000   /* the object grows: more will follow under this name */
#define ICN_ANSWER 0x04000000 /* one Data, for an Interest that icn_recvmsg has delivered */
#define ICN_REFUSE 0x10000000 /* nothing will be published under this name */

/* Flags of a consumer's icn_recvfrom and icn_recvmsg. ICN_ANSWER also selects the answer to an
 * Interest that icn_sendmsg sent with that flag. */
#define ICN_NEWEST 0x02000000 /* if this call starts the read: with the newest segment */

/* In msg_flags after icn_recvmsg. */
#define ICN_MISSED 0x08000000     /* segments were skipped before these bytes */
#define ICN_UNVERIFIED 0x20000000 /* not all content was verified, as options allow */
#define ICN_UNSIGNED_END 0x40000000 /* with the result 0: no signature covers this end (hICN) */

/* A name with a terminating zero: an NDN URI such as "/site/file", or an hICN address such as
 * "hicn:b001::1". */
struct sockaddr_icn {
    sa_family_t sicn_family; /* AF_ICN */
    char sicn_name[1024];
};

/* Creates a socket. Use the descriptor only with these functions and with poll, select, epoll and
 * fcntl (O_NONBLOCK). POLLIN means that icn_recvfrom or icn_recvmsg would not block. */
int icn_socket(int domain, int type, int protocol);

/* Binds the socket to a name prefix: it fetches or publishes names below it. Connects to the router
 * that `weir get` would use, or to that of the option "router". A producer waits until the router
 * has registered the prefix. */
int icn_bind(int fd, const struct sockaddr *addr, socklen_t addrlen);

/* Sets an option by the text "name=value". A producer's options, and "router", must be set before
 * icn_bind. A consumer's options apply to reads that start afterwards. In addition to
 * docs/socket-options.md there are:
 *   "router=ADDRESS"       the router: "unix:///run/nfd/nfd.sock", a path, "tcp://host"; "default"
 *   "sign=KEY"             producer: one of the user's keys, by the name of the key, its identity
 *                          or its certificate; "default"; "digest": no key
 *   "anchors=FILE:FILE"    consumer: trust only the owners of these certificates, and signers that
 *                          they certify, for names below their own; "": none
 *   "allow_unsigned=true"  consumer: accept content that has only a digest
 *   "accept_unverified=true"  consumer: also accept content whose signature cannot be verified,
 *                          such as that of producers that do not serve their certificate. No signer
 *                          is remembered. Names of anchors and of known signers still need theirs
 *   "hicn_key=FILE"        consumer: accept only packets signed with this key of an hICN producer:
 *                          a public key in PEM, an NDN certificate, or the passphrase of an HMAC
 *                          key; "": none
 *   "range=FIRST,COUNT"    consumer: fetch COUNT bytes from FIRST on, or to the end of the object;
 *                          "range=FIRST": to the end. Reading starts at FIRST. */
int icn_setsockopt(int fd, int level, int optname, const void *optval, socklen_t optlen);

/* Gets the value of an option; for ICN_OFFER see icn_recvmsg. On entry, optval holds the option's
 * name with a terminating zero, and *optlen is the size of optval. On return, optval holds the
 * value as text with a terminating zero, and *optlen its length including the zero. */
int icn_getsockopt(int fd, int level, int optname, void *optval, socklen_t *optlen);

/* Producer: publishes len bytes as a new version of a name, or as the version at the end of the
 * name. Returns len after signing. The socket serves the content until it leaves the output buffer.
 * With ICN_REFUSE instead: consumers that request the name now learn that nothing exists.
 *
 * With ICN_MORE, the bytes are the next part of an object that grows, such as a log or a stream.
 * The first such call starts the object, possibly without bytes. Readers get each part at once, as
 * a sequence of bytes without boundaries. The first call without the flag ends the object, with its
 * bytes, if any, as the last part. If the socket is closed first, the object has no end, which
 * readers notice later (ECONNRESET, ETIMEDOUT). */
ssize_t icn_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr,
                   socklen_t addrlen);

/* Consumer: reads the bytes of the named object in order, in as many calls as the buffer requires.
 * 0 is the end. A call after the end, or after an error, starts again. Each name has its own
 * position, so several objects can be read at once. MSG_DONTWAIT returns what is available, or
 * EAGAIN.
 *
 * For an object that grows, the call waits for the next part, or returns EAGAIN, and poll reports
 * when the part is available. With ICN_NEWEST, reading starts with the newest part. The option
 * "behind" decides whether a slow reader continues in order or with the newest part. With
 * ICN_ANSWER: returns the content of the answer to an Interest. */
ssize_t icn_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *src_addr,
                     socklen_t *addrlen);

/* Producer: like icn_sendto, to msg_name. Consumer: sends a single Interest for msg_name, with the
 * bytes, if any, as its parameters. With ICN_ANSWER, the answer is kept for icn_recvmsg or
 * icn_recvfrom with the same name and flag. It arrives within the option "lifetime" or never.
 * Without the flag, it is dropped. */
ssize_t icn_sendmsg(int fd, const struct msghdr *msg, int flags);

/* Consumer: like icn_recvfrom, from msg_name. Answers are not verified, and must fit into the
 * buffers. Producer: waits for an Interest for a name that is not published. Stores its name in
 * msg_name and its parameters in the buffers. Publish, answer or refuse it. If they do not fit:
 * EMSGSIZE, and the next call returns the same Interest.
 *
 * A consumer cannot publish, but it can offer content of its own producer. icn_getsockopt with
 * ICN_OFFER (in: a name; out: its offer) on that producer returns bytes that icn_sendmsg sends to a
 * server. There they are the parameters of a request with a control message: level SOL_ICN, type
 * ICN_OFFER, data a struct sockaddr_icn with the name of the offered content. The server fetches it
 * with its own consumer and answers with ICN_ANSWER. If the control message does not fit:
 * MSG_CTRUNC. */
ssize_t icn_recvmsg(int fd, struct msghdr *msg, int flags);

/* Closes the socket. All other calls that wait on it, or are signing, return EBADF; then its prefix
 * is free. Published content is no longer served. */
int icn_close(int fd);

#ifdef __cplusplus
}
#endif

#endif
