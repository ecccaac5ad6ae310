/* Kills its own process with SIGKILL in the KILL_AT-th call that changes a file under KILL_FOLDER:
 * before it, or with KILL_HALF after the first half of what a write has. Makes KILL_TOLD first. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long changes;

static int is_ours(const char *path)
{
    const char *folder = getenv("KILL_FOLDER");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_our_file(int file)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    long length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return is_ours(path);
}

/* Whether this change is the one to die in. */
static int is_last(void)
{
    const char *at = getenv("KILL_AT");
    return at && atomic_fetch_add(&changes, 1) + 1 == strtol(at, NULL, 10);
}

static void end(void)
{
    syscall(SYS_openat, AT_FDCWD, getenv("KILL_TOLD"), O_CREAT | O_WRONLY, 0600);
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

ssize_t write(int file, const void *bytes, size_t count)
{
    if (is_our_file(file) && is_last()) {
        if (getenv("KILL_HALF")) {
            syscall(SYS_write, file, bytes, count / 2);
        }
        end();
    }
    return syscall(SYS_write, file, bytes, count);
}

static int opened(const char *path, int flags, int mode)
{
    if (flags & (O_CREAT | O_TRUNC) && is_ours(path) && is_last()) {
        end();
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    return opened(path, flags | O_LARGEFILE, mode);
}

int rename(const char *from, const char *to)
{
    if (is_ours(to) && is_last()) {
        end();
    }
    return (int)syscall(SYS_rename, from, to);
}

int unlink(const char *path)
{
    if (is_ours(path) && is_last()) {
        end();
    }
    return (int)syscall(SYS_unlink, path);
}

int ftruncate64(int file, off64_t length)
{
    if (is_our_file(file) && is_last()) {
        end();
    }
    return (int)syscall(SYS_ftruncate, file, length);
}
