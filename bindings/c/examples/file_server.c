/* Serves the files of a directory: file_server DIRECTORY PREFIX.
 * Reads and signs a file, with the user's default key, when it is requested. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/socket.h>

static struct sockaddr_icn address_of(const char *name)
{
    struct sockaddr_icn address = {AF_ICN, ""};
    if (strlen(name) >= sizeof address.sicn_name) {
        fprintf(stderr, "%s: too long\n", name);
        exit(2);
    }
    strcpy(address.sicn_name, name);
    return address;
}

/* Reads a whole file; NULL if it cannot be read. */
static char *read_file(const char *path, size_t *len)
{
    char *octets = NULL;
    FILE *file = fopen(path, "rb");
    *len = 0;
    if (file == NULL)
        return NULL;
    for (size_t room = 1 << 16;; room *= 2) {
        char *larger = realloc(octets, room);
        if (larger == NULL)
            break;
        octets = larger;
        *len += fread(octets + *len, 1, room - *len, file);
        if (*len < room)
            break;
    }
    if (!feof(file)) {
        free(octets);
        octets = NULL;
    }
    fclose(file);
    return octets;
}

/* Requests must not leave the directory. Names with encoded characters are refused. */
static int is_plain(const char *path)
{
    return path[0] == '/' && strstr(path, "/.") == NULL && strpbrk(path, "%=") == NULL;
}

int main(int argc, char **argv)
{
    struct sockaddr_icn own, asked;
    struct msghdr request = {0};
    char path[4096];
    if (argc != 3) {
        fprintf(stderr, "file_server DIRECTORY PREFIX\n");
        return 2;
    }
    own = address_of(argv[2]);
    int fd = icn_socket(AF_ICN, SOCK_PROD, PROD_REL);
    if (fd < 0 || icn_bind(fd, (struct sockaddr *)&own, sizeof own) < 0) {
        perror(argv[2]);
        return 1;
    }
    printf("serving %s as %s\n", argv[1], argv[2]);
    fflush(stdout);
    for (;;) {
        request.msg_name = &asked;
        request.msg_namelen = sizeof asked;
        if (icn_recvmsg(fd, &request, 0) < 0) {
            perror("request");
            return 1;
        }
        size_t len = 0, own_len = strlen(argv[2]);
        int is_own = strncmp(asked.sicn_name, argv[2], own_len) == 0;
        const char *file = is_own ? asked.sicn_name + own_len : "";
        int size = snprintf(path, sizeof path, "%s%s", argv[1], file);
        int is_known = is_plain(file) && size > 0 && (size_t)size < sizeof path;
        char *octets = is_known ? read_file(path, &len) : NULL;
        int flags = octets != NULL ? 0 : ICN_REFUSE;
        if (icn_sendto(fd, octets, len, flags, (struct sockaddr *)&asked, request.msg_namelen) < 0)
            perror(asked.sicn_name);
        free(octets);
    }
}
