/* What the first thread of a process, which is the broker's event loop, asks of a file system: for
 * processes that load this with LD_PRELOAD. Every call below the folder DISK_CALLS_FOLDER is a line
 * of the file DISK_CALLS_RECORD, for as long as that file exists:
 *
 *     name <tab> path <tab> bytes
 *
 * A read of what is in the page cache, which can't wait for a disk, has the name "cached read".
 */
#include "../faults/libc_calls.h"

#include <dirent.h>
#include <sys/stat.h>

#define LOOK_BYTES 65536 /* of what is sent: it takes what the socket does */
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

static int is_first_thread(void) { return syscall(SYS_gettid) == syscall(SYS_getpid); }

static void tell(const char *name, const char *path, long long bytes) {
    const char *record = getenv("DISK_CALLS_RECORD");
    char line[4400];
    if (!record || !is_below("DISK_CALLS_FOLDER", path) || !strcmp(path, record)) return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, record, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
    if (fd < 0) return;
    int size = snprintf(line, sizeof line, "%s\t%s\t%lld\n", name, path, bytes);
    syscall(SYS_write, fd, line, (size_t)size);
    syscall(SYS_close, fd);
}

static void tell_fd(const char *name, int fd, long long bytes) {
    int saved = errno;
    char path[4096];
    if (is_first_thread()) {
        path_of(fd, path, sizeof path);
        tell(name, path, bytes);
    }
    errno = saved;
}

static void tell_path(const char *name, int folder, const char *given) {
    int saved = errno;
    char path[PATH_BYTES];
    if (given && is_first_thread()) {
        path_at(folder, given, path);
        tell(name, path, 0);
    }
    errno = saved;
}

/* Whether the page of a byte would have to be waited for. */
static int is_cold(int fd, off_t at) {
    int saved = errno;
    char byte;
    struct iovec into = {&byte, 1};
    int cold = syscall(SYS_preadv2, fd, &into, 1, (long)at, (long)(at >> 32), RWF_NOWAIT) < 0
        && errno == EAGAIN;
    errno = saved;
    return cold;
}

static void tell_read(const char *name, int fd, off_t at, size_t size) {
    if (size && is_first_thread()) {
        int cold = is_cold(fd, at) || is_cold(fd, at + (off_t)size - 1);
        tell_fd(cold ? name : "cached read", fd, (long long)size);
    }
}

#define PREAD(name) \
    ssize_t name(int fd, void *into, size_t size, off_t at) { \
        REAL(ssize_t, #name, int, void *, size_t, off_t); \
        tell_read(#name, fd, at, size); \
        return real(fd, into, size, at); \
    }
PREAD(pread)
PREAD(pread64)

#define PREADV2(name) \
    ssize_t name(int fd, const struct iovec *into, int count, off_t at, int flags) { \
        REAL(ssize_t, #name, int, const struct iovec *, int, off_t, int); \
        if (!(flags & RWF_NOWAIT)) tell_fd(#name, fd, 0); \
        return real(fd, into, count, at, flags); \
    }
PREADV2(preadv2)
PREADV2(preadv64v2)

#define SENDFILE(name) \
    ssize_t name(int out, int fd, off_t *at, size_t size) { \
        REAL(ssize_t, #name, int, int, off_t *, size_t); \
        if (at) tell_read(#name, fd, *at, size > LOOK_BYTES ? LOOK_BYTES : size); \
        return real(out, fd, at, size); \
    }
SENDFILE(sendfile)
SENDFILE(sendfile64)

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t size, off_t at) { \
        REAL(ssize_t, #name, int, const void *, size_t, off_t); \
        tell_fd("pwrite", fd, (long long)size); \
        return real(fd, data, size, at); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at) { \
        REAL(ssize_t, #name, int, const struct iovec *, int, off_t); \
        long long size = 0; \
        for (int part = 0; part < count; part++) size += (long long)parts[part].iov_len; \
        tell_fd("pwrite", fd, size); \
        return real(fd, parts, count, at); \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PREADV(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at) { \
        REAL(ssize_t, #name, int, const struct iovec *, int, off_t); \
        size_t size = 0; \
        for (int part = 0; part < count; part++) size += parts[part].iov_len; \
        tell_read(#name, fd, at, size); \
        return real(fd, parts, count, at); \
    }
PREADV(preadv)
PREADV(preadv64)

#define PWRITEV2(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at, int flags) { \
        REAL(ssize_t, #name, int, const struct iovec *, int, off_t, int); \
        tell_fd(#name, fd, 0); \
        return real(fd, parts, count, at, flags); \
    }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

#define BY_FD(result, name, parameters, arguments, ...) \
    result name parameters { \
        REAL(result, #name, __VA_ARGS__); \
        tell_fd(#name, fd, 0); \
        return real arguments; \
    }
BY_FD(ssize_t, read, (int fd, void *b, size_t n), (fd, b, n), int, void *, size_t)
BY_FD(ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n), int, const void *, size_t)
BY_FD(int, fsync, (int fd), (fd), int)
BY_FD(int, fdatasync, (int fd), (fd), int)
BY_FD(int, sync_file_range, (int fd, off_t at, off_t n, unsigned f), (fd, at, n, f),
      int, off_t, off_t, unsigned)
BY_FD(int, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n),
      int, int, off_t, off_t)
BY_FD(int, fallocate64, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n),
      int, int, off_t, off_t)
BY_FD(int, ftruncate, (int fd, off_t n), (fd, n), int, off_t)
BY_FD(int, ftruncate64, (int fd, off_t n), (fd, n), int, off_t)
BY_FD(int, close, (int fd), (fd), int)

#define BY_PATH(result, name, parameters, arguments, folder, path, ...) \
    result name parameters { \
        REAL(result, #name, __VA_ARGS__); \
        tell_path(#name, folder, path); \
        return real arguments; \
    }
BY_PATH(int, unlink, (const char *p), (p), AT_FDCWD, p, const char *)
BY_PATH(int, rmdir, (const char *p), (p), AT_FDCWD, p, const char *)
BY_PATH(int, mkdir, (const char *p, mode_t m), (p, m), AT_FDCWD, p, const char *, mode_t)
BY_PATH(int, rename, (const char *p, const char *q), (p, q), AT_FDCWD, p,
        const char *, const char *)
BY_PATH(int, truncate, (const char *p, off_t n), (p, n), AT_FDCWD, p, const char *, off_t)
BY_PATH(int, truncate64, (const char *p, off_t n), (p, n), AT_FDCWD, p, const char *, off_t)
BY_PATH(DIR *, opendir, (const char *p), (p), AT_FDCWD, p, const char *)
BY_PATH(int, access, (const char *p, int m), (p, m), AT_FDCWD, p, const char *, int)
BY_PATH(int, chmod, (const char *p, mode_t m), (p, m), AT_FDCWD, p, const char *, mode_t)
BY_PATH(int, unlinkat, (int d, const char *p, int f), (d, p, f), d, p, int, const char *, int)
BY_PATH(int, mkdirat, (int d, const char *p, mode_t m), (d, p, m), d, p,
        int, const char *, mode_t)
BY_PATH(int, renameat, (int d, const char *p, int e, const char *q), (d, p, e, q), d, p,
        int, const char *, int, const char *)
#define STAT(name, kind) \
    BY_PATH(int, name, (const char *p, struct kind *s), (p, s), AT_FDCWD, p, \
            const char *, struct kind *)
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
#define FSTATAT(name, kind) \
    BY_PATH(int, name, (int d, const char *p, struct kind *s, int f), (d, p, s, f), d, p, \
            int, const char *, struct kind *, int)
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        MODE(mode, flags); \
        tell_path(#name, AT_FDCWD, path); \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(int, #name, int, const char *, int, ...); \
        MODE(mode, flags); \
        tell_path(#name, folder, path); \
        return real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)
