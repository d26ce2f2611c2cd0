/* Publishes one reading, and another on request. */
#include <stdio.h>
#include <string.h>
#include <weir/socket.h>

static int publish(int fd, const struct sockaddr_icn *name, const char *text, int flags)
{
    if (icn_sendto(fd, text, strlen(text), flags, (struct sockaddr *)name, sizeof *name) >= 0)
        return 0;
    perror(name->sicn_name);
    return -1;
}

int main(void)
{
    struct sockaddr_icn home = {AF_ICN, "/home"}, kitchen = {AF_ICN, "/home/kitchen"}, asked;
    struct msghdr request = {0};
    request.msg_name = &asked;
    int fd = icn_socket(AF_ICN, SOCK_PROD, PROD_REL);
    if (fd < 0 || icn_bind(fd, (struct sockaddr *)&home, sizeof home) < 0) {
        perror("/home");
        return 1;
    }
    if (publish(fd, &kitchen, "21.5\n", 0) < 0)
        return 1;
    printf("published %s\n", kitchen.sicn_name);
    fflush(stdout);
    for (;;) {
        request.msg_namelen = sizeof asked;
        if (icn_recvmsg(fd, &request, 0) < 0) /* a request for an unpublished name */
            return 1;
        if (strcmp(asked.sicn_name, "/home/attic") == 0)
            publish(fd, &asked, "31.0\n", 0);
        else
            publish(fd, &asked, "", ICN_REFUSE);
    }
}
