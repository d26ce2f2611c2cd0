/* Writes an object to standard output: file_client NAME. */
#include <stdio.h>
#include <string.h>
#include <weir/socket.h>

int main(int argc, char **argv)
{
    struct sockaddr_icn name = {AF_ICN, ""};
    socklen_t len = sizeof name;
    char octets[1 << 16];
    ssize_t count;
    if (argc != 2 || strlen(argv[1]) >= sizeof name.sicn_name) {
        fprintf(stderr, "file_client NAME\n");
        return 2;
    }
    strcpy(name.sicn_name, argv[1]);
    int fd = icn_socket(AF_ICN, SOCK_CONS, CONS_REL);
    if (fd < 0 || icn_bind(fd, (struct sockaddr *)&name, len) < 0) {
        perror(argv[1]);
        return 1;
    }
    while ((count = icn_recvfrom(fd, octets, sizeof octets, 0, (struct sockaddr *)&name, &len)) > 0)
        if (fwrite(octets, 1, (size_t)count, stdout) != (size_t)count)
            break;
    if (count != 0 || fflush(stdout) != 0) {
        perror(argv[1]);
        return 1;
    }
    return icn_close(fd) == 0 ? 0 : 1;
}
