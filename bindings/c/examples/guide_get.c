/* Prints an object: guide_get NAME. */
#include <stdio.h>
#include <string.h>
#include <weir/socket.h>

int main(int argc, char **argv)
{
    struct sockaddr_icn name = {AF_ICN, ""};
    socklen_t len = sizeof name;
    char octets[1 << 16];
    ssize_t count;
    if (argc != 2 || strlen(argv[1]) >= sizeof name.sicn_name)
        return 2;
    strcpy(name.sicn_name, argv[1]);
    int fd = icn_socket(AF_ICN, SOCK_CONS, CONS_REL); /* trusts the same signers as `weir get` */
    if (fd < 0 || icn_bind(fd, (struct sockaddr *)&name, len) < 0 ||
        icn_setsockopt(fd, SOL_ICN, ICN_OPTION, "retries=3", 9) < 0) {
        perror(argv[1]);
        return 1;
    }
    while ((count = icn_recvfrom(fd, octets, sizeof octets, 0, (struct sockaddr *)&name, &len)) > 0)
        fwrite(octets, 1, (size_t)count, stdout);
    if (count < 0)
        perror(argv[1]);
    return count < 0 || icn_close(fd) < 0;
}
