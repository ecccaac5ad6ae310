/* Memory, contexts and entry points of the driver, with real bytes: SIMCUDA_STORE=bytes. */
#include "simcuda.h"
#include <unistd.h>

typedef struct { uint32_t type, handle_types; struct { uint32_t type; int id; } location; void *win32; uint8_t flags[8]; } properties_t;
typedef struct { struct { uint32_t type; int id; } location; uint32_t flags; } access_t;

static void before_the_start(void) {
    int value;
    address_t address;
    EXPECT(NOT_INITIALIZED, CALL(cuDeviceGetCount, &value));
    EXPECT(INVALID_VALUE, CALL(cuInit, 1));
    OK(cuDriverGetVersion, &value);
    EXPECT(13000, value);
    OK(cuInit, 0);
    OK(cuDeviceGetCount, &value);
    EXPECT(2, value);
    EXPECT(INVALID_CONTEXT, CALL(cuMemAlloc_v2, &address, (size_t)512));
    EXPECT(INVALID_DEVICE, CALL(cuDeviceGet, &value, 2));
}

static void contexts(void) {
    void *zero, *one, *current;
    int device, active;
    OK(cuDevicePrimaryCtxGetState, 1, &device, &active);
    EXPECT(0, active);
    OK(cuDevicePrimaryCtxRetain, &zero, 0);
    OK(cuDevicePrimaryCtxRetain, &one, 1);
    OK(cuDevicePrimaryCtxGetState, 1, &device, &active);
    EXPECT(1, active);
    OK(cuCtxGetCurrent, &current);
    EXPECT(0, current);
    OK(cuCtxPushCurrent_v2, zero);
    OK(cuCtxPushCurrent_v2, one);
    OK(cuCtxGetDevice, &device);
    EXPECT(1, device);
    OK(cuCtxPopCurrent_v2, &current);
    EXPECT(one, current);
    OK(cuCtxGetCurrent, &current);
    EXPECT(zero, current);
    EXPECT(INVALID_CONTEXT, CALL(cuCtxPushCurrent_v2, (void *)8));
}

static void copies_move_bytes(void) {
    address_t first, second, base;
    size_t size, free_before, free_after, total;
    char out[4096], in[4096];
    OK(cuMemGetInfo_v2, &free_before, &total);
    EXPECT((size_t)1 << 30, total);
    OK(cuMemAlloc_v2, &first, (size_t)4096);
    OK(cuMemAlloc_v2, &second, (size_t)8 << 20);
    for (int index = 0; index < 4096; index++) out[index] = (char)(index * 7);
    OK(cuMemcpyHtoD_v2, first, out, sizeof out);
    OK(cuMemcpyDtoDAsync_v2, second + 512, first, sizeof out, (void *)0);
    OK(cuMemcpyDtoH_v2, in, second + 512, sizeof in);
    EXPECT(0, memcmp(in, out, sizeof in));
    OK(cuMemsetD32_v2, first, 0x01020304u, (size_t)1024);
    OK(cuMemcpy, (address_t)(uintptr_t)in, first, sizeof in);
    EXPECT(4, in[0]);
    EXPECT(1, in[4095]);
    EXPECT(INVALID_VALUE, CALL(cuMemsetD32_v2, first + 2, 0u, (size_t)1));
    EXPECT(0, strcmp(getenv("SIMCUDA_PRICES"), ((const char *(*)(void))find("simcuda_prices"))()));
    /* Copies that wait are the machine's calls, by whatever name they come. */
    int64_t calls = LONG(simcuda_calls, "cuMemcpyDtoH");
    OK(simcuda_fail, "cuMemcpyDtoH", (int64_t)2, 700, (int64_t)1);
    OK(cuMemcpyDtoH_v2, in, first, sizeof in);
    EXPECT(700, CALL(cuMemcpy, (address_t)(uintptr_t)in, first, sizeof in));
    OK(cuMemcpyDtoHAsync_v2, in, first, sizeof in, (void *)0);
    EXPECT(calls + 2, LONG(simcuda_calls, "cuMemcpyDtoH"));
    OK(cuMemGetAddressRange_v2, &base, &size, second + 100000);
    EXPECT(second, base);
    EXPECT((size_t)8 << 20, size);
    uint32_t kind;
    int ordinal;
    OK(cuPointerGetAttribute, &kind, 2, first + 5);
    OK(cuPointerGetAttribute, &ordinal, 9, first);
    EXPECT(2, kind);
    EXPECT(0, ordinal);
    EXPECT(INVALID_VALUE, CALL(cuPointerGetAttribute, &kind, 2, (address_t)(uintptr_t)in));
    EXPECT(INVALID_VALUE, CALL(cuMemcpyDtoH_v2, in, second + ((size_t)8 << 20), (size_t)8));
    EXPECT(1, LONG(simcuda_check));
    CALL(simcuda_violations_clear);
    OK(cuMemFree_v2, first);
    EXPECT(INVALID_VALUE, CALL(cuMemFree_v2, first));
    OK(cuMemFree_v2, second);
    OK(cuMemGetInfo_v2, &free_after, &total);
    EXPECT(free_before, free_after);
}

static void virtual_memory(void) {
    properties_t properties = { .type = 1, .location = { 1, 0 } };
    access_t access = { { 1, 0 }, 3 };
    size_t granule;
    address_t range;
    uint64_t handle;
    OK(cuMemGetAllocationGranularity, &granule, &properties, 0);
    EXPECT(2 << 20, granule);
    OK(cuMemAddressReserve, &range, 4 * granule, (size_t)0, (address_t)0, (uint64_t)0);
    OK(cuMemCreate, &handle, granule, &properties, (uint64_t)0);
    for (int place = 0; place < 2; place++)
        OK(cuMemMap, range + 2 * place * granule, granule, (size_t)0, handle, (uint64_t)0);
    EXPECT(INVALID_VALUE, CALL(cuMemMap, range, granule, (size_t)0, handle, (uint64_t)0));
    OK(cuMemRelease, handle);
    OK(cuMemSetAccess, range, granule, &access, (size_t)1);
    OK(cuMemSetAccess, range + 2 * granule, granule, &access, (size_t)1);
    OK(cuMemsetD8_v2, range + 100, 7, (size_t)1);
    EXPECT(7, *(char *)(uintptr_t)(range + 2 * granule + 100));
    OK(cuCtxSynchronize);
    OK(cuMemUnmap, range, granule);
    OK(cuMemUnmap, range + 2 * granule, granule);
    OK(cuMemAddressFree, range, 4 * granule);
    properties.handle_types = 1;
    OK(cuMemCreate, &handle, granule, &properties, (uint64_t)0);
    int descriptor = -1;
    OK(cuMemExportToShareableHandle, &descriptor, handle, 1, (uint64_t)0);
    EXPECT(0, close(descriptor));
    OK(cuMemRelease, handle);
    for (uint32_t type = 2; type <= 8; type *= 4) { /* a handle of Windows, a fabric's */
        properties.handle_types = type;
        EXPECT(NOT_SUPPORTED, CALL(cuMemCreate, &handle, granule, &properties, (uint64_t)0));
    }
}

static void host_memory(void) {
    void *pinned;
    static char own[10000];
    OK(cuMemAllocHost_v2, &pinned, (size_t)10000);
    memset(pinned, 1, 10000);
    OK(cuMemHostRegister_v2, own, sizeof own, 0);
    EXPECT(712, CALL(cuMemHostRegister_v2, own + 9999, (size_t)10, 0));
    EXPECT(712, CALL(cuMemHostRegister_v2, (char *)pinned + 100, (size_t)10, 0));
    EXPECT(713, CALL(cuMemHostUnregister, own + 1));
    EXPECT(713, CALL(cuMemHostUnregister, pinned));
    EXPECT(INVALID_VALUE, CALL(cuMemFreeHost, own));
    OK(cuMemHostUnregister, own);
    OK(cuMemHostRegister_v2, own + 1, (size_t)100, 3); /* it need not be aligned */
    OK(cuMemHostUnregister, own + 1);
    EXPECT(INVALID_VALUE, CALL(cuMemHostRegister_v2, own, sizeof own, 16));
    EXPECT(INVALID_VALUE, CALL(cuMemHostRegister_v2, own, (size_t)0, 0));
    void *flagged;
    EXPECT(INVALID_VALUE, CALL(cuMemHostAlloc, &flagged, (size_t)100, 8));
    OK(cuMemHostAlloc, &flagged, (size_t)100, 7);
    OK(cuMemFreeHost, flagged);
    EXPECT(713, CALL(cuMemHostUnregister, own));
    OK(cuMemFreeHost, pinned);
    EXPECT(INVALID_VALUE, CALL(cuMemFreeHost, pinned));
}

static void entry_points(void) {
    void *function;
    int status;
    OK(cuGetProcAddress_v2, "cuMemAlloc", &function, 12000, (uint64_t)0, &status);
    EXPECT(find("cuMemAlloc_v2"), function);
    OK(cuGetProcAddress_v2, "cuStreamGetCaptureInfo", &function, 12000, (uint64_t)0, &status);
    EXPECT(find("cuStreamGetCaptureInfo_v2"), function);
    OK(cuGetProcAddress_v2, "cuStreamGetCaptureInfo", &function, 13000, (uint64_t)0, &status);
    EXPECT(find("cuStreamGetCaptureInfo_v3"), function);
    OK(cuGetProcAddress_v2, "cuTexRefCreate", &function, 13000, (uint64_t)0, &status);
    EXPECT(0, function);
    EXPECT(1, status);
    EXPECT(NOT_FOUND, CALL(cuGetProcAddress, "cuTexRefCreate", &function, 13000, (uint64_t)0));
}

int main(void) {
    const char *name;
    open_driver();
    before_the_start();
    contexts();
    copies_move_bytes();
    virtual_memory();
    host_memory();
    entry_points();
    OK(cuGetErrorName, 2, &name);
    EXPECT(0, strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY"));
    EXPECT(INVALID_VALUE, CALL(cuGetErrorName, 12345, &name));
    EXPECT(0, LONG(simcuda_check));
    EXPECT(0, LONG(simcuda_validate));
    const char *alive[] = { "used_bytes", "allocations", "handles", "mappings", "reservations",
                            "host_allocations", "host_registrations" };
    for (size_t index = 0; index < sizeof alive / sizeof *alive; index++)
        EXPECT(0, LONG(simcuda_census, alive[index]));
    EXPECT(-1, LONG(simcuda_census, "nothing"));
    return 0;
}
