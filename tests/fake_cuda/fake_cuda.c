/*
 * A stand-in for libcuda.so.1 that checks how it is called.
 *
 * It has no GPU and hardly any state: it refuses whatever the real driver would refuse
 * (calls without the right current context, structures filled in wrongly) and what this
 * project promises never to do (calls outside the relaxed capture mode), and it counts what
 * has to balance. Structures are spelt out here from CUDA's manual, so that the layouts the
 * library uses are checked against a second source.
 *
 * Compile-time switches: INIT_CODE, DEVICE_COUNT, WITHOUT_INIT, WITHOUT_CAPTURE_MODE,
 * WITHOUT_VMM (symbols absent), VMM_SUPPORTED, RDMA_SUPPORTED, RDMA_UNKNOWN, FABRIC_CODE (what
 * creating memory with a fabric handle is answered with).
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef INIT_CODE
#define INIT_CODE 0
#endif
#ifndef DEVICE_COUNT
#define DEVICE_COUNT 2
#endif
#ifndef VMM_SUPPORTED
#define VMM_SUPPORTED 1
#endif
#ifndef RDMA_SUPPORTED
#define RDMA_SUPPORTED 0
#endif
#ifndef FABRIC_CODE
#define FABRIC_CODE 0
#endif

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_IMPLICIT = 906,
};

enum { GLOBAL = 0, RELAXED = 2 };
enum { GRANULE = 2 << 20, STACK_DEPTH = 16 };

typedef unsigned long long address_t;
typedef unsigned long long handle_t;

typedef struct { uint32_t type; int id; } location_t;
typedef struct {
    uint32_t type;
    uint32_t requested_handle_types;
    location_t location;
    void *win32_handle_meta_data;
    struct {
        uint8_t compression_type;
        uint8_t gpu_direct_rdma_capable;
        uint16_t usage;
        uint8_t reserved[4];
    } flags;
} properties_t;
typedef struct { location_t location; uint32_t flags; } access_t;

_Static_assert(sizeof(properties_t) == 32, "properties");
_Static_assert(offsetof(properties_t, location) == 8, "location");
_Static_assert(offsetof(properties_t, flags) == 24, "flags");
_Static_assert(sizeof(access_t) == 12, "access");

/* One context for each device; its address is its handle. */
static struct { int device; } contexts[DEVICE_COUNT > 0 ? DEVICE_COUNT : 1];

static int initialized;
static _Thread_local void *stack[STACK_DEPTH];
static _Thread_local int depth;
static _Thread_local unsigned capture_mode = GLOBAL;

/* What the tests read and write through dlsym. */
int fake_next_code;          /* answered by the next checked call, once */
int fake_event_ready = 1;    /* whether events and streams are found complete */
unsigned fake_capture_status;
int fake_stream_id = 17; /* -1: a number with all bits */
long fake_pushes, fake_pops, fake_retains, fake_accessors;
int fake_handle_types, fake_rdma; /* what memory was last created with */

int fake_context_depth(void) { return depth; }
unsigned fake_capture_mode(void) { return capture_mode; }

/* The device whose context is current, or -1. */
static int current_device(void) {
    if (depth == 0) return -1;
    return (int)((char *)stack[depth - 1] - (char *)contexts) / (int)sizeof contexts[0];
}

/* What stands at the head of every call that works on a device, and that captures of other streams
 * forbid (may_capture 0) or allow. */
static int checked(int may_capture) {
    if (!initialized) return NOT_INITIALIZED;
    if (current_device() < 0) return INVALID_CONTEXT;
    if (capture_mode != RELAXED && !may_capture) return CAPTURE_UNSUPPORTED;
    return __atomic_exchange_n(&fake_next_code, 0, __ATOMIC_SEQ_CST);
}

#define CHECKED_AS(may_capture) \
    do { int code_ = checked(may_capture); if (code_ != SUCCESS) return code_; } while (0)
#define CHECKED() CHECKED_AS(0)
/* Recording an event, and asking if a stream captures. PyTorch's allocator does both in any mode, and
 * relaxes it for cuEventQuery; HIP checks cuEventQuery's and cuEventSynchronize's counterparts alone
 * (ROCm/rocm-systems#3176). */
#define CHECKED_IN_ANY_MODE() CHECKED_AS(1)
#define REQUIRE(condition, code) do { if (!(condition)) return (code); } while (0)

int cuDriverGetVersion(int *version) { *version = 12040; return SUCCESS; }

int cuGetErrorName(int code, const char **name) {
    switch (code) {
    case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; return SUCCESS;
    default: *name = NULL; return INVALID_VALUE;
    }
}

#ifndef WITHOUT_INIT
int cuInit(unsigned flags) {
    REQUIRE(flags == 0, INVALID_VALUE);
    initialized = INIT_CODE == SUCCESS;
    return INIT_CODE;
}
#endif

int cuDeviceGetCount(int *count) {
    REQUIRE(initialized, NOT_INITIALIZED);
    *count = DEVICE_COUNT;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    REQUIRE(ordinal >= 0 && ordinal < DEVICE_COUNT, INVALID_DEVICE);
    *device = ordinal;
    return SUCCESS;
}

int cuDeviceGetName(char *name, int length, int device) {
    REQUIRE(length >= 16, INVALID_VALUE);
    strcpy(name, device == 0 ? "Fake GPU 0" : "Fake GPU n");
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    REQUIRE(device >= 0 && device < DEVICE_COUNT, INVALID_DEVICE);
    switch (attribute) {
    case 102: *value = VMM_SUPPORTED; return SUCCESS;
#ifndef RDMA_UNKNOWN
    case 110: *value = RDMA_SUPPORTED; return SUCCESS;
#endif
    default: return INVALID_VALUE;
    }
}

/* A device can access those of lower ordinals, so the order of the two devices matters. */
int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    REQUIRE(device >= 0 && device < DEVICE_COUNT, INVALID_DEVICE);
    REQUIRE(peer >= 0 && peer < DEVICE_COUNT && peer != device, INVALID_DEVICE);
    *can = device > peer;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    REQUIRE(device >= 0 && device < DEVICE_COUNT, INVALID_DEVICE);
    REQUIRE(capture_mode == RELAXED, CAPTURE_UNSUPPORTED);
    __atomic_fetch_add(&fake_retains, 1, __ATOMIC_SEQ_CST);
    *context = &contexts[device];
    return SUCCESS;
}

int cuCtxPushCurrent_v2(void *context) {
    REQUIRE(depth < STACK_DEPTH && context != NULL, INVALID_VALUE);
    stack[depth++] = context;
    __atomic_fetch_add(&fake_pushes, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

int cuCtxPopCurrent_v2(void **context) {
    REQUIRE(depth > 0, INVALID_CONTEXT);
    *context = stack[--depth];
    __atomic_fetch_add(&fake_pops, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

int cuCtxGetCurrent(void **context) {
    *context = depth > 0 ? stack[depth - 1] : NULL;
    return SUCCESS;
}

#ifndef WITHOUT_CAPTURE_MODE
int cuThreadExchangeStreamCaptureMode(unsigned *mode) {
    unsigned former = capture_mode;
    REQUIRE(*mode <= RELAXED, INVALID_VALUE);
    capture_mode = *mode;
    *mode = former;
    return SUCCESS;
}
#endif

int cuCtxSynchronize(void) { CHECKED(); return SUCCESS; }

/* The total tells the devices apart: device n has (n + 1) GiB. */
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    CHECKED();
    *total_bytes = (size_t)(current_device() + 1) << 30;
    *free_bytes = *total_bytes / 2;
    return SUCCESS;
}

int cuMemAlloc_v2(address_t *address, size_t bytes) {
    CHECKED();
    REQUIRE(bytes > 0, INVALID_VALUE);
    *address = (address_t)(uintptr_t)aligned_alloc(512, (bytes + 511) / 512 * 512);
    return *address ? SUCCESS : 2;
}

int cuMemFree_v2(address_t address) {
    CHECKED();
    REQUIRE(address % 512 == 0, INVALID_VALUE);
    free((void *)(uintptr_t)address);
    return SUCCESS;
}

int cuMemAllocHost_v2(void **address, size_t bytes) {
    CHECKED();
    *address = malloc(bytes);
    return *address ? SUCCESS : 2;
}

int cuMemFreeHost(void *address) { CHECKED(); free(address); return SUCCESS; }

int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
    CHECKED();
    REQUIRE(address != NULL && bytes > 0 && flags == 1, INVALID_VALUE);
    return SUCCESS;
}

int cuMemHostUnregister(void *address) {
    CHECKED();
    REQUIRE(address != NULL, INVALID_VALUE);
    return SUCCESS;
}

int cuMemcpyDtoH_v2(void *to, address_t from, size_t bytes) {
    CHECKED();
    REQUIRE(to != NULL && from != 0 && bytes > 0, INVALID_VALUE);
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return SUCCESS;
}

int cuMemcpyHtoD_v2(address_t to, const void *from, size_t bytes) {
    CHECKED();
    REQUIRE(to != 0 && from != NULL && bytes > 0, INVALID_VALUE);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return SUCCESS;
}

int cuMemAllocManaged(address_t *address, size_t bytes, unsigned flags) {
    REQUIRE(flags == 1, INVALID_VALUE);
    return cuMemAlloc_v2(address, bytes);
}

int cuMemAdvise(address_t address, size_t bytes, unsigned advice, int device) {
    CHECKED();
    REQUIRE(address != 0 && bytes > 0 && advice == 3 && device == -1, INVALID_VALUE);
    return SUCCESS;
}

int cuMemPrefetchAsync(address_t address, size_t bytes, int device, void *stream) {
    CHECKED();
    REQUIRE(address != 0 && bytes > 0 && device == -1 && (uintptr_t)stream == 77, INVALID_VALUE);
    return SUCCESS;
}

int cuMemsetD8Async(address_t to, unsigned char value, size_t bytes, void *stream) {
    CHECKED();
    REQUIRE(to != 0 && bytes > 0, INVALID_VALUE);
    REQUIRE(stream == NULL || (uintptr_t)stream == 77, INVALID_HANDLE);
    memset((void *)(uintptr_t)to, value, bytes);
    return SUCCESS;
}

#ifndef WITHOUT_VMM
static const address_t RANGE = 0x700000000000ull;
static const handle_t HANDLE = 0xfeedfacecafe0001ull;

enum { POSIX = 1, FABRIC = 8 };

static int properties_are_right(const properties_t *properties) {
    static const uint8_t zeros[4];
    const uint32_t types = properties->requested_handle_types;
    return properties->type == 1 && (types == 0 || types == POSIX || types == FABRIC ||
            types == (POSIX | FABRIC)) &&
           properties->location.type == 1 && properties->location.id == current_device() &&
           properties->win32_handle_meta_data == NULL &&
           properties->flags.compression_type == 0 &&
           properties->flags.gpu_direct_rdma_capable <= RDMA_SUPPORTED &&
           properties->flags.usage == 0 && memcmp(properties->flags.reserved, zeros, 4) == 0;
}

/* Each property has a granule of its own. */
static size_t granule(const properties_t *properties) {
    if (properties->requested_handle_types == FABRIC) return 8 * (size_t)GRANULE;
    return properties->flags.gpu_direct_rdma_capable ? 2 * GRANULE : GRANULE;
}

int cuMemGetAllocationGranularity(size_t *bytes, const properties_t *properties, int option) {
    CHECKED();
    REQUIRE(properties_are_right(properties), INVALID_VALUE);
    *bytes = option == 0 ? granule(properties) : 32 * granule(properties);
    return SUCCESS;
}

int cuMemAddressReserve(address_t *address, size_t bytes, size_t alignment, address_t place,
                        unsigned long long flags) {
    CHECKED();
    REQUIRE(bytes % GRANULE == 0 && place == 0 && flags == 0, INVALID_VALUE);
    REQUIRE(alignment == 0 || alignment % GRANULE == 0, INVALID_VALUE);
    *address = RANGE;
    return SUCCESS;
}

int cuMemAddressFree(address_t address, size_t bytes) {
    CHECKED();
    REQUIRE(address == RANGE && bytes % GRANULE == 0, INVALID_VALUE);
    return SUCCESS;
}

int cuMemCreate(handle_t *handle, size_t bytes, const properties_t *properties,
                unsigned long long flags) {
    CHECKED();
    REQUIRE(properties_are_right(properties), INVALID_VALUE);
    REQUIRE(bytes % granule(properties) == 0 && flags == 0, INVALID_VALUE);
    if (properties->requested_handle_types == FABRIC && FABRIC_CODE != 0) return FABRIC_CODE;
    __atomic_store_n(&fake_handle_types, (int)properties->requested_handle_types,
                     __ATOMIC_SEQ_CST);
    __atomic_store_n(&fake_rdma, properties->flags.gpu_direct_rdma_capable, __ATOMIC_SEQ_CST);
    *handle = HANDLE;
    return SUCCESS;
}

int cuMemRelease(handle_t handle) {
    CHECKED();
    REQUIRE(handle == HANDLE, INVALID_VALUE);
    return SUCCESS;
}

int cuMemMap(address_t address, size_t bytes, size_t offset, handle_t handle,
             unsigned long long flags) {
    CHECKED();
    REQUIRE(address % GRANULE == 0 && bytes % GRANULE == 0 && offset == 0, INVALID_VALUE);
    REQUIRE(handle == HANDLE && flags == 0, INVALID_VALUE);
    return SUCCESS;
}

/* The owner stands first, every accessor is a device there is, and none stands twice. */
int cuMemSetAccess(address_t address, size_t bytes, const access_t *access, size_t count) {
    CHECKED();
    REQUIRE(address % GRANULE == 0 && bytes % GRANULE == 0 && count > 0, INVALID_VALUE);
    REQUIRE(access[0].location.id == current_device(), INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        REQUIRE(access[i].location.type == 1 && access[i].flags == 3, INVALID_VALUE);
        REQUIRE(access[i].location.id >= 0 && access[i].location.id < DEVICE_COUNT, INVALID_VALUE);
        for (size_t j = 0; j < i; j++)
            REQUIRE(access[i].location.id != access[j].location.id, INVALID_VALUE);
    }
    fake_accessors = (long)count;
    return SUCCESS;
}

int cuMemUnmap(address_t address, size_t bytes) {
    CHECKED();
    REQUIRE(address % GRANULE == 0 && bytes % GRANULE == 0, INVALID_VALUE);
    return SUCCESS;
}

/* A descriptor is any file; the handle is known. */
int cuMemExportToShareableHandle(void *out, handle_t handle, unsigned kind,
                                 unsigned long long flags) {
    CHECKED();
    REQUIRE(handle == HANDLE && kind == 1 && flags == 0, INVALID_VALUE);
    *(int *)out = dup(0);
    return SUCCESS;
}

int cuMemImportFromShareableHandle(handle_t *handle, void *descriptor, unsigned kind) {
    CHECKED();
    REQUIRE(fcntl((int)(size_t)descriptor, F_GETFD) >= 0 && kind == 1, INVALID_VALUE);
    *handle = HANDLE;
    return SUCCESS;
}
#endif

/* A handle of 64 bytes holds the address. */
typedef struct {
    address_t words[8];
} ipc_handle_t;

int cuIpcGetMemHandle(ipc_handle_t *handle, address_t address) {
    CHECKED();
    for (int word = 0; word < 8; word++) handle->words[word] = address;
    return SUCCESS;
}

int cuIpcOpenMemHandle_v2(address_t *address, ipc_handle_t handle, unsigned flags) {
    CHECKED();
    REQUIRE(flags == 1 && handle.words[0] == handle.words[7], INVALID_VALUE);
    *address = handle.words[7];
    return SUCCESS;
}

int cuIpcCloseMemHandle(address_t address) {
    CHECKED();
    REQUIRE(address != 0, INVALID_VALUE);
    return SUCCESS;
}

/* Events are pieces of memory; streams are numbers, of which 77 synchronises with nothing. */
int cuEventCreate(void **event, unsigned flags) {
    CHECKED();
    REQUIRE(flags == 2, INVALID_VALUE);
    *event = malloc(8);
    return SUCCESS;
}

int cuEventDestroy_v2(void *event) { CHECKED(); free(event); return SUCCESS; }

int cuEventRecord(void *event, void *stream) {
    CHECKED_IN_ANY_MODE();
    REQUIRE(event != NULL, INVALID_HANDLE);
    REQUIRE(stream == NULL || (uintptr_t)stream == 77, INVALID_HANDLE);
    return SUCCESS;
}

int cuEventQuery(void *event) {
    CHECKED();
    REQUIRE(event != NULL, INVALID_HANDLE);
    return fake_event_ready ? SUCCESS : NOT_READY;
}

int cuEventSynchronize(void *event) { CHECKED(); return event ? SUCCESS : INVALID_HANDLE; }

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    CHECKED();
    REQUIRE(flags == 0 && event != NULL, INVALID_VALUE);
    REQUIRE((uintptr_t)stream == 77, INVALID_HANDLE);
    return SUCCESS;
}

int cuStreamQuery(void *stream) {
    CHECKED();
    return (uintptr_t)stream != 77 ? INVALID_HANDLE : fake_event_ready ? SUCCESS : NOT_READY;
}

/* Numbers of streams need no relaxed mode and, here, a context: the caller makes one current. */
int cuStreamGetId(void *stream, unsigned long long *id) {
    if (current_device() < 0) return INVALID_CONTEXT;
    REQUIRE((uintptr_t)stream == 77, INVALID_HANDLE);
    *id = (unsigned long long)(long long)fake_stream_id;
    return SUCCESS;
}

/* Stream 77 is of the context that is current, and stream 78 of the first device's. */
int cuStreamGetCtx(void *stream, void **context) {
    CHECKED();
    REQUIRE((uintptr_t)stream == 77 || (uintptr_t)stream == 78, INVALID_HANDLE);
    *context = (uintptr_t)stream == 77 ? stack[depth - 1] : &contexts[0];
    return SUCCESS;
}

int cuCtxGetDevice(int *device) {
    REQUIRE(depth > 0, INVALID_CONTEXT);
    *device = current_device();
    return SUCCESS;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    REQUIRE(device >= 0 && device < DEVICE_COUNT, INVALID_DEVICE);
    *flags = 0;
    *active = device == 0;
    return SUCCESS;
}

/* While stream 77 captures, asking about the legacy stream is an error of its own. */
int cuStreamIsCapturing(void *stream, unsigned *status) {
    CHECKED_IN_ANY_MODE();
    if (stream == NULL && fake_capture_status != 0) return CAPTURE_IMPLICIT;
    *status = (uintptr_t)stream == 77 ? fake_capture_status : 0;
    return SUCCESS;
}
