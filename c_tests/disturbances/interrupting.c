/*
 * Preloaded: a system call of the library is interrupted by a signal: the first at the place
 * INTERRUPT_AT (in hexadecimal; none: no call). A place is a stack of the library's functions, from
 * which a call is made that a signal can interrupt: the same number in each run. The call returns
 * EINTR and has done nothing; or, with INTERRUPT_HALF, it has read or written half of what it was
 * to.
 *
 * At its end a process appends a line for each place to the file INTERRUPT_REPORT: the place, the
 * call, and whether it was interrupted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Files opened for direct I/O are read and written by whole pages. */
enum { PAGE_BYTES = 4096, MOST_FRAMES = 64, MOST_PLACES = 4096 };

static uint64_t interrupt_at;
static bool is_half;

/* Where the library's code is. */
static uintptr_t code_begin;
static uintptr_t code_end;

/* The places so far. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t number;
    const char *call;
} places[MOST_PLACES];
static size_t count;

/* The function of that name that this one stands before. */
#define NEXT(name)                                                                                 \
    static __typeof__(&(name)) next;                                                               \
    if (next == NULL) {                                                                            \
        void *found = dlsym(RTLD_NEXT, #name);                                                     \
        memcpy(&next, &found, sizeof next);                                                        \
    }

/* Finds the library's code. */
static int find_code(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size, (void)data;
    if (strstr(object->dlpi_name, "libgenesis.so") == NULL) {
        return 0;
    }
    for (int index = 0; index < object->dlpi_phnum; index++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[index];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            code_begin = object->dlpi_addr + part->p_vaddr;
            code_end = code_begin + part->p_memsz;
        }
    }
    return 1;
}

static bool is_of_library(const void *address)
{
    return (uintptr_t)address >= code_begin && (uintptr_t)address < code_end;
}

/* The place of the call that is being made: what its stack has of the library's code. */
static uint64_t present_place(void)
{
    void *frames[MOST_FRAMES];
    const int count = backtrace(frames, MOST_FRAMES);
    uint64_t place = 1;
    for (int index = 0; index < count; index++) {
        if (is_of_library(frames[index])) {
            place = (place ^ ((uintptr_t)frames[index] - code_begin)) * 0x100000001b3;
        }
    }
    return place;
}

/* Returns true if the call is made at a place that is new, and the one to be interrupted. */
static bool is_next(const char *name, const void *caller)
{
    if (!is_of_library(caller)) {
        return false;
    }
    /* Unwinding may make such a call itself. */
    static __thread bool is_inside;
    if (is_inside) {
        return false;
    }
    is_inside = true;
    const int error = errno;
    const uint64_t place = present_place();
    pthread_mutex_lock(&lock);
    size_t index = 0;
    while (index < count && places[index].number != place) {
        index++;
    }
    const bool is_new = index == count && count < MOST_PLACES;
    if (is_new) {
        places[count].number = place;
        places[count++].call = name;
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    is_inside = false;
    return is_new && place == interrupt_at;
}

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("INTERRUPT_AT");
    interrupt_at = number == NULL ? 0 : strtoull(number, NULL, 16);
    is_half = getenv("INTERRUPT_HALF") != NULL;
    dl_iterate_phdr(find_code, NULL);
    /* The first time it loads what it needs. */
    (void)present_place();
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("INTERRUPT_REPORT");
    const int file = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    for (size_t index = 0; file >= 0 && index < count; index++) {
        const bool is_it = places[index].number == interrupt_at;
        dprintf(file, "%016" PRIx64 " %s %d\n", places[index].number, places[index].call, is_it);
    }
}

#define CALLER __builtin_return_address(0)

/* Calls the next function, unless this call is interrupted before it does anything. */
#define PASS_ON(name, ...)                                                                         \
    NEXT(name)                                                                                     \
    if (!is_half && is_next(#name, CALLER)) {                                                      \
        errno = EINTR;                                                                             \
        return -1;                                                                                 \
    }                                                                                              \
    return next(__VA_ARGS__)

/* The same for a call that moves bytes. */
#define MOVE(name, bytes, ...)                                                                     \
    NEXT(name)                                                                                     \
    if (is_next(#name, CALLER)) {                                                                  \
        if (!is_half) {                                                                            \
            errno = EINTR;                                                                         \
            return -1;                                                                             \
        }                                                                                          \
        bytes = half(file, bytes);                                                                 \
    }                                                                                              \
    return next(__VA_ARGS__)

static size_t half(int file, size_t bytes)
{
    if (bytes >= (size_t)2 * PAGE_BYTES) {
        return bytes / 2 / PAGE_BYTES * PAGE_BYTES;
    }
    const bool is_direct = (fcntl(file, F_GETFL) & O_DIRECT) != 0;
    return is_direct || bytes < 2 ? bytes : bytes / 2;
}

ssize_t read(int file, void *place, size_t bytes)
{
    MOVE(read, bytes, file, place, bytes);
}

ssize_t write(int file, const void *place, size_t bytes)
{
    MOVE(write, bytes, file, place, bytes);
}

ssize_t pread64(int file, void *place, size_t bytes, off64_t offset)
{
    MOVE(pread64, bytes, file, place, bytes, offset);
}

ssize_t pwrite64(int file, const void *place, size_t bytes, off64_t offset)
{
    MOVE(pwrite64, bytes, file, place, bytes, offset);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    PASS_ON(writev, file, parts, count);
}

/* A message of one part, to a stream. */
ssize_t sendmsg(int file, const struct msghdr *message, int flags)
{
    struct iovec part = message->msg_iov[0];
    struct msghdr copy = *message;
    copy.msg_iov = &part;
    MOVE(sendmsg, part.iov_len, file, &copy, flags);
}

ssize_t recvmsg(int file, struct msghdr *message, int flags)
{
    MOVE(recvmsg, message->msg_iov[0].iov_len, file, message, flags);
}

/* The C library's own names for what an address may be. */
ssize_t sendto(int file, const void *place, size_t bytes, int flags, __CONST_SOCKADDR_ARG to,
               socklen_t length)
{
    PASS_ON(sendto, file, place, bytes, flags, to, length);
}

ssize_t recvfrom(int file, void *place, size_t bytes, int flags, __SOCKADDR_ARG from,
                 socklen_t *length)
{
    PASS_ON(recvfrom, file, place, bytes, flags, from, length);
}

int accept4(int file, __SOCKADDR_ARG from, socklen_t *length, int flags)
{
    PASS_ON(accept4, file, from, length, flags);
}

int connect(int file, __CONST_SOCKADDR_ARG to, socklen_t length)
{
    PASS_ON(connect, file, to, length);
}

int poll(struct pollfd *asked, nfds_t count, int milliseconds)
{
    PASS_ON(poll, asked, count, milliseconds);
}

int flock(int file, int operation)
{
    PASS_ON(flock, file, operation);
}

int ftruncate(int file, off_t bytes)
{
    PASS_ON(ftruncate, file, bytes);
}

int ftruncate64(int file, off64_t bytes)
{
    PASS_ON(ftruncate64, file, bytes);
}

int fallocate(int file, int mode, off_t offset, off_t bytes)
{
    PASS_ON(fallocate, file, mode, offset, bytes);
}

ssize_t getrandom(void *place, size_t bytes, unsigned flags)
{
    PASS_ON(getrandom, place, bytes, flags);
}

/* The descriptor is closed all the same. */
int close(int file)
{
    NEXT(close)
    const int result = next(file);
    if (!is_half && is_next("close", CALLER)) {
        errno = EINTR;
        return -1;
    }
    return result;
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    PASS_ON(open64, path, flags, mode);
}

/* Only locks can be interrupted. */
int fcntl(int file, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    NEXT(fcntl)
    const bool is_lock =
        command == F_OFD_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    if (is_lock && !is_half && is_next("fcntl", CALLER)) {
        errno = EINTR;
        return -1;
    }
    return next(file, command, argument);
}

/* It returns the number of the error, and what is left of the time. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
    NEXT(clock_nanosleep)
    if (!is_half && is_next("clock_nanosleep", CALLER)) {
        if (left != NULL && (flags & TIMER_ABSTIME) == 0) {
            *left = *time;
        }
        return EINTR;
    }
    return next(clock, flags, time, left);
}

/* Rust's locks, condition variables and parked threads wait so. */
long syscall(long number, ...)
{
    long arguments[6];
    va_list rest;
    va_start(rest, number);
    for (int index = 0; index < 6; index++) {
        arguments[index] = va_arg(rest, long);
    }
    va_end(rest);
    NEXT(syscall)
    const long operation = arguments[1] & FUTEX_CMD_MASK;
    const bool waits =
        number == SYS_futex && (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET);
    if (waits && !is_half && is_next("futex", CALLER)) {
        errno = EINTR;
        return -1;
    }
    return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                arguments[5]);
}
