/* Another machine, for one process and its children: slow files, a clock that jumps, no inotify.

   KERNBENCH_SLOW=PART   calls on paths that contain PART take 2 s each while the file KERNBENCH_SLOW_FLAG exists
   KERNBENCH_CLOCK=FILE  seconds to add to the time of day
   KERNBENCH_NO_INOTIFY  inotify_init fails as it does when all of the user's instances are in use */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void wait_if(const char *path) {
    const char *part = getenv("KERNBENCH_SLOW"), *flag = getenv("KERNBENCH_SLOW_FLAG");
    if (part && flag && path && strstr(path, part) && syscall(SYS_faccessat, AT_FDCWD, flag, F_OK) == 0) {
        struct timespec two = {2, 0};
        nanosleep(&two, NULL);
    }
}

static void wait_if_open(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (size > 0) {
        path[size] = 0;
        wait_if(path);
    }
}

#define OPEN(name)                                       \
    int name(const char *path, int flags, ...) {         \
        va_list more;                                    \
        va_start(more, flags);                           \
        int mode = va_arg(more, int);                    \
        va_end(more);                                    \
        wait_if(path);                                   \
        return NEXT(name)(path, flags, mode);            \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                     \
    int name(int at, const char *path, int flags, ...) { \
        va_list more;                                    \
        va_start(more, flags);                           \
        int mode = va_arg(more, int);                    \
        va_end(more);                                    \
        wait_if(path);                                   \
        return NEXT(name)(at, path, flags, mode);        \
    }
OPENAT(openat)
OPENAT(openat64)

#define STAT(name, kind)                                 \
    int name(const char *path, kind *about) {            \
        wait_if(path);                                   \
        return NEXT(name)(path, about);                  \
    }
STAT(stat, struct stat)
STAT(lstat, struct stat)
STAT(stat64, struct stat64)
STAT(lstat64, struct stat64)

int fstatat(int at, const char *path, struct stat *about, int flags) {
    wait_if(path);
    return NEXT(fstatat)(at, path, about, flags);
}

int fstatat64(int at, const char *path, struct stat64 *about, int flags) {
    wait_if(path);
    return NEXT(fstatat64)(at, path, about, flags);
}

int flock(int fd, int operation) {
    wait_if_open(fd);
    return NEXT(flock)(fd, operation);
}

int fsync(int fd) {
    wait_if_open(fd);
    return NEXT(fsync)(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = syscall(SYS_clock_gettime, clock, now);
    const char *file = getenv("KERNBENCH_CLOCK");
    if (code == 0 && file && clock == CLOCK_REALTIME) {
        char text[32] = "";
        int fd = syscall(SYS_openat, AT_FDCWD, file, O_RDONLY);
        if (fd >= 0) {
            if (syscall(SYS_read, fd, text, sizeof text - 1) > 0) now->tv_sec += atoll(text);
            syscall(SYS_close, fd);
        }
    }
    return code;
}

int inotify_init1(int flags) {
    if (getenv("KERNBENCH_NO_INOTIFY")) {
        errno = EMFILE;
        return -1;
    }
    return syscall(SYS_inotify_init1, flags);
}
