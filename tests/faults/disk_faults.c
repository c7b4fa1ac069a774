/* A disk with faults, for processes that load this with LD_PRELOAD: calls below the folder
 * DISK_FAULTS_FOLDER block, or fail, for as long as the file DISK_FAULTS_CONTROL says so.
 *
 * The control file has an errno (0: block) and letters of what is struck: w writes, s syncs,
 * f space (fallocate, ftruncate), n names (open to create, unlink, rename, mkdir, rmdir), r reads,
 * p positioned writes into files without a name, as a probe makes them.
 * Without the file, or where it is empty, every call goes through. The folder seems to have a
 * device below it, also where it is in memory.
 */
#include "libc_calls.h"

#include <sys/vfs.h>
#include <time.h>

#define FOLDER "DISK_FAULTS_FOLDER"
#define LOOK_NS 5000000L

/* What the control file says of this kind of call: an errno, 0 to block, -1 for nothing. */
static int said_of(char kind) {
    const char *control = getenv("DISK_FAULTS_CONTROL");
    char text[64];
    int fd = control ? (int)syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd < 0) return -1;
    ssize_t size = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (size <= 0) return -1;
    text[size] = 0;
    char *letters = NULL;
    long number = strtol(text, &letters, 10);
    return letters != text && strchr(letters, kind) ? (int)number : -1;
}

/* Wait while calls of this kind are blocked; 0, or -1 with errno where they fail. */
static int struck(char kind) {
    int saved = errno, said;
    while ((said = said_of(kind)) == 0) {
        struct timespec pause = {0, LOOK_NS};
        nanosleep(&pause, NULL);
    }
    errno = said > 0 ? said : saved;
    return said > 0 ? -1 : 0;
}

static int on_fd(int fd, char kind) {
    int saved = errno;
    char path[4096];
    if (said_of(kind) < 0) return errno = saved, 0;
    int below = path_of(fd, path, sizeof path) && is_below(FOLDER, path);
    errno = saved;
    return below ? struck(kind) : 0;
}

static int on_path(int folder, const char *name, char kind) {
    int saved = errno;
    char path[PATH_BYTES];
    if (said_of(kind) < 0) return errno = saved, 0;
    path_at(folder, name, path);
    errno = saved;
    return is_below(FOLDER, path) ? struck(kind) : 0;
}

#define BY_FD(result, name, kind, parameters, arguments, ...) \
    result name parameters { \
        REAL(result, #name, __VA_ARGS__); \
        return on_fd(fd, kind) ? (result)-1 : real arguments; \
    }

BY_FD(ssize_t, write, 'w', (int fd, const void *b, size_t n), (fd, b, n), int, const void *, size_t)
BY_FD(ssize_t, writev, 'w', (int fd, const struct iovec *v, int n), (fd, v, n),
      int, const struct iovec *, int)
static int is_unnamed(int fd) {
    char path[4096];
    int saved = errno;
    size_t length = path_of(fd, path, sizeof path) ? strlen(path) : 0;
    errno = saved;
    return length > 10 && !strcmp(path + length - 10, " (deleted)");
}

#define PWRITE(name) BY_FD(ssize_t, name, is_unnamed(fd) && said_of('p') >= 0 ? 'p' : 'w', (int fd, const void *b, size_t n, off_t at), \
                           (fd, b, n, at), int, const void *, size_t, off_t)
PWRITE(pwrite)
PWRITE(pwrite64)
#define PWRITEV(name) BY_FD(ssize_t, name, 'w', \
                            (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at), \
                            int, const struct iovec *, int, off_t)
PWRITEV(pwritev)
PWRITEV(pwritev64)
#define PWRITEV2(name) BY_FD(ssize_t, name, 'w', \
                             (int fd, const struct iovec *v, int n, off_t at, int flags), \
                             (fd, v, n, at, flags), int, const struct iovec *, int, off_t, int)
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

BY_FD(ssize_t, read, 'r', (int fd, void *b, size_t n), (fd, b, n), int, void *, size_t)
#define PREAD(name) BY_FD(ssize_t, name, 'r', (int fd, void *b, size_t n, off_t at), \
                          (fd, b, n, at), int, void *, size_t, off_t)
PREAD(pread)
PREAD(pread64)
#define PREADV2(name) BY_FD(ssize_t, name, 'r', \
                            (int fd, const struct iovec *v, int n, off_t at, int flags), \
                            (fd, v, n, at, flags), int, const struct iovec *, int, off_t, int)
PREADV2(preadv2)
PREADV2(preadv64v2)
#define SENDFILE(name) \
    ssize_t name(int out, int fd, off_t *at, size_t n) { \
        REAL(ssize_t, #name, int, int, off_t *, size_t); \
        return on_fd(fd, 'r') ? -1 : real(out, fd, at, n); \
    }
SENDFILE(sendfile)
SENDFILE(sendfile64)

BY_FD(int, fsync, 's', (int fd), (fd), int)
BY_FD(int, fdatasync, 's', (int fd), (fd), int)
BY_FD(int, sync_file_range, 's', (int fd, off_t at, off_t n, unsigned flags), (fd, at, n, flags),
      int, off_t, off_t, unsigned)

#define FALLOCATE(name) BY_FD(int, name, 'f', (int fd, int mode, off_t at, off_t n), \
                              (fd, mode, at, n), int, int, off_t, off_t)
FALLOCATE(fallocate)
FALLOCATE(fallocate64)
BY_FD(int, ftruncate, 'f', (int fd, off_t n), (fd, n), int, off_t)
BY_FD(int, ftruncate64, 'f', (int fd, off_t n), (fd, n), int, off_t)

#define BY_PATH(name, parameters, arguments, folder, path, ...) \
    int name parameters { \
        REAL(int, #name, __VA_ARGS__); \
        return on_path(folder, path, 'n') ? -1 : real arguments; \
    }

BY_PATH(unlink, (const char *p), (p), AT_FDCWD, p, const char *)
BY_PATH(rmdir, (const char *p), (p), AT_FDCWD, p, const char *)
BY_PATH(mkdir, (const char *p, mode_t m), (p, m), AT_FDCWD, p, const char *, mode_t)
BY_PATH(rename, (const char *p, const char *q), (p, q), AT_FDCWD, p, const char *, const char *)
BY_PATH(unlinkat, (int d, const char *p, int f), (d, p, f), d, p, int, const char *, int)
BY_PATH(mkdirat, (int d, const char *p, mode_t m), (d, p, m), d, p, int, const char *, mode_t)
BY_PATH(renameat, (int d, const char *p, int e, const char *q), (d, p, e, q), d, p,
        int, const char *, int, const char *)

static char open_kind(int flags) { return flags & (O_CREAT | O_TRUNC) ? 'n' : 'r'; }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        MODE(mode, flags); \
        return on_path(AT_FDCWD, path, open_kind(flags)) ? -1 : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(int, #name, int, const char *, int, ...); \
        MODE(mode, flags); \
        return on_path(folder, path, open_kind(flags)) ? -1 : real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define EXT4 0xEF53
#define STATFS(name, found) \
    int name(const char *path, struct found *into) { \
        REAL(int, #name, const char *, struct found *); \
        int failed = real(path, into); \
        if (!failed && is_below(FOLDER, path)) into->f_type = EXT4; \
        return failed; \
    }
STATFS(statfs, statfs)
STATFS(statfs64, statfs64)
