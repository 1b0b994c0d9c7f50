/* Calls of the system that never return, as on a mount that is down: loaded before libc, in one process of a test.
   While the file $STALL exists, open() of the path $STALL_OPEN hangs, and so does the look-up of the name $STALL_NAME. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void stall(const char *variable, const char *value) {
    const char *wanted = getenv(variable), *flag = getenv("STALL");
    if (value && wanted && flag && strcmp(wanted, value) == 0 && access(flag, F_OK) == 0)
        for (;;) pause();
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    stall("STALL_OPEN", path);
    int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    return next(path, flags, mode);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    stall("STALL_NAME", name);
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    return next(name, service, hints, found);
}
