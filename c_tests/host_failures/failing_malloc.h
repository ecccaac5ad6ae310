/*
 * Allocations of the host that fail on demand: those that the code of libgenesis.so asks for
 * itself. The program's own and those of the C library do not.
 *
 * A program that includes this has the process's malloc, calloc, realloc and posix_memalign.
 */
#ifndef GENESIS_FAILING_MALLOC_H
#define GENESIS_FAILING_MALLOC_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The C library's own. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *ptr, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

/* Where libgenesis.so is mapped. */
static uintptr_t library_start, library_end;
/* How many allocations it has asked for, and which of them fail: `[fail_from, fail_until)`. */
static long asked, fail_from = LONG_MAX, fail_until = LONG_MAX;

static int find_library(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size, (void)unused;
    if (strstr(object->dlpi_name, "libgenesis.so") == NULL) {
        return 0;
    }
    library_start = UINTPTR_MAX;
    for (int n = 0; n < object->dlpi_phnum; n++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[n];
        if (part->p_type == PT_LOAD) {
            const uintptr_t start = object->dlpi_addr + part->p_vaddr;
            library_start = start < library_start ? start : library_start;
            library_end = start + part->p_memsz;
        }
    }
    return 1;
}

/* From now on the allocations that the library asks for are counted, and `count` of them fail, the
 * first of which is the one numbered `from`, from 1. */
static void fail_allocations(long from, long count)
{
    if (library_end == 0) {
        dl_iterate_phdr(find_library, NULL);
    }
    __atomic_store_n(&fail_from, LONG_MAX, __ATOMIC_SEQ_CST);
    __atomic_store_n(&fail_until, count > LONG_MAX - from ? LONG_MAX : from + count,
                     __ATOMIC_SEQ_CST);
    __atomic_store_n(&asked, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&fail_from, from, __ATOMIC_SEQ_CST);
}

static int is_refused(const void *caller)
{
    if ((uintptr_t)caller < library_start || (uintptr_t)caller >= library_end) {
        return 0;
    }
    const long number = __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
    if (number < fail_from || number >= fail_until) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *ptr, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_realloc(ptr, size);
}

int posix_memalign(void **ptr, size_t alignment, size_t size)
{
    if (is_refused(__builtin_return_address(0))) {
        return ENOMEM;
    }
    void *memory = __libc_memalign(alignment, size);
    if (memory == NULL) {
        return ENOMEM;
    }
    *ptr = memory;
    return 0;
}

#endif /* GENESIS_FAILING_MALLOC_H */
