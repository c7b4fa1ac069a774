/* What the libraries for LD_PRELOAD share: how a wrapper finds the function of libc, and which file
 * a call is about. Include it first: it sets _GNU_SOURCE.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define PATH_BYTES 8200

/* Inside of a wrapper: `real` is libc's function of this name. */
#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* Inside of an open: the mode, which is only there for some flags. */
#define MODE(mode, flags) \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest)

/* Whether a path is the folder that an environment variable names, or below it. */
static int is_below(const char *variable, const char *path) {
    const char *folder = getenv(variable);
    size_t length = folder ? strlen(folder) : 0;
    return length && !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

/* The path of an open file, "" where it has none. */
static int path_of(int fd, char *path, size_t size) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* The path of a name in an open folder, in PATH_BYTES. */
static void path_at(int folder, const char *name, char *path) {
    size_t length = 0;
    if (name[0] != '/' && folder != AT_FDCWD && path_of(folder, path, 4096)) {
        length = strlen(path);
        path[length++] = '/';
    }
    snprintf(path + length, PATH_BYTES - length, "%s", name);
}
