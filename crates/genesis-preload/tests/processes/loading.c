/*
 * CUDA's libraries come and go while the program runs: opened late and privately, closed and opened
 * again, or missing.
 */
#include "cuda.h"

static int use_plugin(void *plugin)
{
    int (*use)(void);
    *(void **)&use = dlsym(plugin, "plugin_use");
    CHECK(use != NULL);
    return use();
}

/* A library that brings the runtime along, loaded privately. */
static void plugin(const char *path)
{
    long long expected = 0;
    for (int time = 0; time < 3; time++) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        CHECK(dlsym(RTLD_DEFAULT, "plugin_use") == NULL);
        CHECK_OK(use_plugin(library));
        expected += 2;
        CHECK_SERVED(expected);
        CHECK(dlclose(library) == 0);
    }
}

/* The driver, opened and closed by the program, which looks its functions up each time. */
static void driver(const char *unused)
{
    (void)unused;
    for (int time = 0; time < 3; time++) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        int (*init)(unsigned int flags);
        int (*retain)(void **context, int device);
        int (*set_current)(void *context);
        int (*allocate)(device_address *block, size_t bytes);
        int (*release)(device_address block);
        void *context;
        device_address block;
        CHECK(library != NULL);
        (void)dlerror();
        *(void **)&init = dlsym(library, "cuInit");
        *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
        *(void **)&set_current = dlsym(library, "cuCtxSetCurrent");
        *(void **)&allocate = dlsym(library, "cuMemAlloc_v2");
        *(void **)&release = dlsym(library, "cuMemFree_v2");
        /* The manual's way to look for errors. */
        CHECK(dlerror() == NULL);
        CHECK_OK(init(0));
        CHECK_OK(retain(&context, 0));
        CHECK_OK(set_current(context));
        CHECK_OK(allocate(&block, MIB));
        CHECK_OK(release(block));
        CHECK_SERVED(time + 1);
        CHECK_OK(set_current(NULL));
        CHECK(dlclose(library) == 0);
    }
}

/* A machine without a driver: the runtime says so, and no memory is made up. */
static void missing(const char *path)
{
    CHECK(dlopen("libcuda.so.1", RTLD_NOW) == NULL);
    CHECK(dlerror() != NULL);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    EXPECT(CUDA_INSUFFICIENT_DRIVER, use_plugin(library));
    EXPECT(CUDA_INSUFFICIENT_DRIVER, use_plugin(library));
    CHECK(dlclose(library) == 0);
}

/* Nothing of CUDA: lookups are answered as without the library. */
static void without(const char *unused)
{
    (void)unused;
    int (*print)(const char *text);
    *(void **)&print = dlsym(RTLD_DEFAULT, "puts");
    CHECK(print != NULL && print("as ever") >= 0);
    CHECK(dlsym(RTLD_DEFAULT, "no_such_function") == NULL);
    CHECK(strstr(dlerror(), "no_such_function") != NULL);
    CHECK(dlvsym(RTLD_DEFAULT, "puts", "GLIBC_1.0") == NULL);
    /* Absent functions stay absent, though the preload library has some of these names. */
    CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
    CHECK(genesis_library() == NULL);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(const char *path);
    } cases[] = {
        {"plugin", plugin},
        {"driver", driver},
        {"missing", missing},
        {"without", without},
    };
    for (size_t index = 0; index < LENGTH(cases); index++) {
        if (count >= 2 && strcmp(arguments[1], cases[index].name) == 0) {
            cases[index].run(count > 2 ? arguments[2] : NULL);
            return 0;
        }
    }
    CHECK(!"the case is known");
    return 1;
}
