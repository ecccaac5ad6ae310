/*
 * Another interposer, such as profilers and quota managers have: it defines cudaMalloc, cudaFree
 * and dlsym, counts, and goes on to the next definition.
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

int cudaMalloc(void **block, size_t bytes);
int cudaFree(void *block);
int interposer_count(void);

static int count;

typedef void *(*lookup)(void *handle, const char *name);

/* The next dlsym, found as such libraries find it. */
static lookup next_lookup(void)
{
    static lookup next;
    if (next == NULL) {
        *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (next == NULL) {
            *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        }
        if (next == NULL) {
            *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
        }
    }
    return next;
}

static void *next_of(const char *name)
{
    return next_lookup()(RTLD_NEXT, name);
}

int cudaMalloc(void **block, size_t bytes)
{
    int (*next)(void **block, size_t bytes);
    *(void **)&next = next_of("cudaMalloc");
    __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    return next(block, bytes);
}

int cudaFree(void *block)
{
    int (*next)(void *block);
    *(void **)&next = next_of("cudaFree");
    __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    return next(block);
}

/* Programs that look up a function that it defines get its own. */
void *dlsym(void *restrict handle, const char *restrict name)
{
    if (handle != RTLD_NEXT && strcmp(name, "cudaMalloc") == 0) {
        return (void *)cudaMalloc;
    }
    if (handle != RTLD_NEXT && strcmp(name, "cudaFree") == 0) {
        return (void *)cudaFree;
    }
    return next_lookup()(handle, name);
}

int interposer_count(void)
{
    return __atomic_load_n(&count, __ATOMIC_RELAXED);
}
