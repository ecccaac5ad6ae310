/*
 * The fake of PyTorch as a program sees it that opens it. As under Python, neither PyTorch nor a C++
 * runtime is visible to all.
 */
#ifndef GENESIS_FAKE_H
#define GENESIS_FAKE_H

#include "../../c_tests/check.h"

/* What a call of the fake's came to, as Python would see it. */
struct outcome {
    void *pointer;
    char raised[32];
    char message[1024];
    int attempts;
};

/* Writes the address of the library's function `name` to `function`. */
static inline void find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    CHECK(symbol != NULL);
    memcpy(function, &symbol, sizeof symbol);
}

/* Opens the fake in `folder`. */
static inline void *open_fake(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/libtorch_python.so", folder);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

#endif
