/*
 * Every way to CUDA's functions for memory, by the program's argument. Each must lead to Genesis
 * for what it serves, and to the driver for the rest.
 */
#include "preload.h"

typedef int (*function)();

static const char *way;
static void *driver;

/* The driver's function of that plain name, for CUDA `version`. */
static function by_proc_address(const char *name, int version) {
    void *found = NULL;
    int status = 9;
    if (version < 12000) {
        int (*find)(const char *, void **, int, uint64_t);
        *(void **)&find = dlsym(driver, "cuGetProcAddress");
        CHECK_OK(find(name, &found, version, 0));
    } else {
        int (*find)(const char *, void **, int, uint64_t, int *);
        *(void **)&find = dlsym(driver, "cuGetProcAddress_v2");
        CHECK_OK(find(name, &found, version, 0, &status));
        EXPECT(0, status);
    }
    CHECK(found != NULL);
    return (function)found;
}

/* The driver's function, found in the way that is tested. */
static function find(const char *plain, const char *symbol) {
    void *found = NULL;
    int status = 9;
    if (!strcmp(way, "dlsym")) return (function)dlsym(driver, symbol);
    if (!strcmp(way, "default")) return (function)dlsym(RTLD_DEFAULT, symbol);
    if (!strcmp(way, "proc_address")) return by_proc_address(plain, 12000);
    if (!strcmp(way, "old_proc_address")) return by_proc_address(plain, 11030);
    if (!strcmp(way, "proc_address_of_itself")) {
        /* As the runtime does: the driver's own function for such searches. */
        function search = by_proc_address("cuGetProcAddress", 12000);
        CHECK_OK(search(plain, &found, 12000, (uint64_t)0, &status));
        return (function)found;
    }
    CHECK(!strcmp(way, "entry_point"));
    CHECK_OK(cudaGetDriverEntryPointByVersion(plain, &found, 12000, 0, &status));
    EXPECT(0, status);
    return (function)found;
}

static void by_driver(void) {
    unsigned long long block = 0, base = 0, foreign = 0, handle;
    size_t bytes = 0, free_before, free_now, total, pitch;
    void *context;
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(driver != NULL);
    CHECK(dlsym(driver, "cuNoSuchFunction") == NULL && dlerror() != NULL);
    function allocate = find("cuMemAlloc", "cuMemAlloc_v2");
    function release = find("cuMemFree", "cuMemFree_v2");
    function synchronize = find("cuCtxSynchronize", "cuCtxSynchronize");
    /* Before there is a context the driver answers. */
    CHECK(allocate(&block, MIB) != OK);
    CHECK(genesis_library() == NULL);
    CHECK_OK(find("cuInit", "cuInit")(0));
    CHECK_OK(find("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain")(&context, 0));
    CHECK_OK(find("cuCtxSetCurrent", "cuCtxSetCurrent")(context));

    CHECK_OK(allocate(&block, 3 * MIB + 1));
    CHECK(block % 512 == 0);
    EXPECT(3 * MIB + 1, statistics(0).requested_bytes.current);
    CHECK_OK(find("cuMemGetAddressRange", "cuMemGetAddressRange_v2")(&base, &bytes, block + 5));
    CHECK(base == block && bytes == 3 * MIB + 1);
    function attribute = find("cuPointerGetAttribute", "cuPointerGetAttribute");
    CHECK_OK(attribute(&base, 11, block + 5));
    CHECK_OK(attribute(&bytes, 12, block + 5));
    CHECK(base == block && bytes == 3 * MIB + 1);
    function attributes = find("cuPointerGetAttributes", "cuPointerGetAttributes");
    void *places[] = {&bytes, &base};
    int wanted[] = {12, 11};
    CHECK_OK(attributes(2, wanted, places, block + 7));
    CHECK(base == block && bytes == 3 * MIB + 1);
    function info = find("cuMemGetInfo", "cuMemGetInfo_v2");
    CHECK_OK(info(&free_before, &total));
    CHECK_OK(release(block));
    CHECK_OK(info(&free_now, &total));
    CHECK(free_now >= free_before + 3 * MIB);
    EXPECT(INVALID_VALUE, release(block));
    CHECK_OK(synchronize());
    EXPECT(0, statistics(0).requested_bytes.current);

    EXPECT(INVALID_VALUE, allocate(&block, (size_t)0));
    EXPECT(OUT_OF_MEMORY, allocate(&block, SIZE_MAX));
    function pitched = find("cuMemAllocPitch", "cuMemAllocPitch_v2");
    CHECK_OK(pitched(&block, &pitch, (size_t)1000, (size_t)8, 4u));
    EXPECT(1024, pitch);
    EXPECT(8 * 1024, statistics(0).requested_bytes.current);
    CHECK_OK(release(block));
    EXPECT(OUT_OF_MEMORY, pitched(&block, &pitch, SIZE_MAX, (size_t)2, 4u));
    EXPECT(OUT_OF_MEMORY, pitched(&block, &pitch, SIZE_MAX / 4, (size_t)512, 16u));

    CHECK_OK(find("cuMemAllocAsync", "cuMemAllocAsync")(&block, 5 * MIB, NULL));
    EXPECT(5 * MIB, statistics(0).requested_bytes.current - 8 * 1024);
    CHECK_OK(find("cuMemFreeAsync", "cuMemFreeAsync")(block, NULL));
    CHECK_OK(synchronize());
    EXPECT(0, statistics(0).requested_bytes.current);

    /* The program's own memory: reserved, created and mapped by itself. */
    struct { int kind, handles, place, device; uint64_t more[2]; } properties = {1, 0, 1, 0, {0}};
    CHECK_OK(find("cuMemAddressReserve", "cuMemAddressReserve")(
        &foreign, 2 * MIB, (size_t)0, (uint64_t)0, (uint64_t)0));
    CHECK_OK(find("cuMemCreate", "cuMemCreate")(&handle, 2 * MIB, &properties, (uint64_t)0));
    CHECK_OK(find("cuMemMap", "cuMemMap")(foreign, 2 * MIB, (size_t)0, handle, (uint64_t)0));
    CHECK_OK(find("cuMemGetAddressRange", "cuMemGetAddressRange_v2")(&base, &bytes, foreign + 9));
    CHECK(base == foreign && bytes == 2 * MIB);
    CHECK(release(foreign) != OK);
    CHECK(release(foreign + 512) != OK);
}

static void by_runtime(function allocate, function release) {
    void *block;
    CHECK_OK(allocate(&block, 3 * MIB));
    EXPECT(3 * MIB, statistics(0).requested_bytes.current);
    EXPECT(1, statistics(0).allocations);
    EXPECT(0, simcuda_calls("cuMemAlloc"));
    CHECK_OK(release(block));
    CHECK_OK(cudaDeviceSynchronize());
    EXPECT(0, statistics(0).allocated_bytes.current);
}

int main(int count, char **arguments) {
    EXPECT(2, count);
    way = arguments[1];
    if (!strcmp(way, "linked")) {
        by_runtime((function)cudaMalloc, (function)cudaFree);
    } else if (!strcmp(way, "runtime_dlsym")) {
        void *runtime = dlopen("libcudart.so", RTLD_NOW | RTLD_LOCAL);
        CHECK(runtime != NULL);
        by_runtime((function)dlsym(runtime, "cudaMalloc"), (function)dlsym(runtime, "cudaFree"));
    } else {
        by_driver();
    }
    check_violations();
    return 0;
}
