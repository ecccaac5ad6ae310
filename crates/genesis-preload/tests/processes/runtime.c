/*
 * A small CUDA runtime over the driver, like libcudart.so.12: it opens libcuda.so.1 at its first
 * call and makes the primary context of device 0 current in each thread that calls it.
 */
#include "cuda.h"

#include <pthread.h>

enum { PRIMARY_DEVICE = 0 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int state = CUDA_INSUFFICIENT_DRIVER;
static void *context;
static __thread int last_error;
static __thread int has_context;

static struct {
    int (*init)(unsigned int flags);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*allocate)(device_address *block, size_t bytes);
    int (*release)(device_address block);
    int (*allocate_async)(device_address *block, size_t bytes, cuda_stream stream);
    int (*release_async)(device_address block, cuda_stream stream);
    int (*stream_create)(cuda_stream *stream, unsigned int flags);
    int (*stream_destroy)(cuda_stream stream);
    int (*synchronize)(void);
    int (*memory_info)(size_t *free_bytes, size_t *total_bytes);
} driver;

static void start(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return;
    }
    const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuInit", &driver.init},
        {"cuDevicePrimaryCtxRetain", &driver.retain},
        {"cuCtxSetCurrent", &driver.set_current},
        {"cuMemAlloc_v2", &driver.allocate},
        {"cuMemFree_v2", &driver.release},
        {"cuMemAllocAsync", &driver.allocate_async},
        {"cuMemFreeAsync", &driver.release_async},
        {"cuStreamCreate", &driver.stream_create},
        {"cuStreamDestroy_v2", &driver.stream_destroy},
        {"cuCtxSynchronize", &driver.synchronize},
        {"cuMemGetInfo_v2", &driver.memory_info},
    };
    for (size_t index = 0; index < LENGTH(functions); index++) {
        *(void **)functions[index].function = dlsym(library, functions[index].name);
    }
    state = driver.init(0);
    if (state == CUDA_SUCCESS) {
        state = driver.retain(&context, PRIMARY_DEVICE);
    }
}

static int ready(void)
{
    pthread_once(&once, start);
    if (state == CUDA_SUCCESS && !has_context) {
        const int code = driver.set_current(context);
        has_context = code == CUDA_SUCCESS;
        return code;
    }
    return state;
}

static int finish(int code)
{
    if (code != CUDA_SUCCESS) {
        last_error = code;
    }
    return code;
}

/* One call of the driver, once it is started. */
#define RUN(call)                                                                                  \
    do {                                                                                           \
        const int code_ = ready();                                                                 \
        return finish(code_ == CUDA_SUCCESS ? (call) : code_);                                     \
    } while (0)

int cudaMalloc(void **block, size_t bytes)
{
    if (bytes == 0) {
        *block = NULL;
        return finish(ready());
    }
    RUN(driver.allocate((device_address *)block, bytes));
}

int cudaFree(void *block)
{
    RUN(block == NULL ? CUDA_SUCCESS : driver.release((device_address)(uintptr_t)block));
}

int cudaMallocAsync(void **block, size_t bytes, cuda_stream stream)
{
    RUN(driver.allocate_async((device_address *)block, bytes, stream));
}

int cudaFreeAsync(void *block, cuda_stream stream)
{
    RUN(driver.release_async((device_address)(uintptr_t)block, stream));
}

int cudaStreamCreate(cuda_stream *stream)
{
    RUN(driver.stream_create(stream, 0));
}

int cudaStreamDestroy(cuda_stream stream)
{
    RUN(driver.stream_destroy(stream));
}

int cudaDeviceSynchronize(void)
{
    RUN(driver.synchronize());
}

/* simcuda has no resets: this is one for programs that use nothing from before. */
int cudaDeviceReset(void)
{
    return finish(ready());
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    RUN(driver.memory_info(free_bytes, total_bytes));
}

int cudaGetDevice(int *device);
int cudaGetDevice(int *device)
{
    *device = PRIMARY_DEVICE;
    return finish(ready());
}

int cudaPeekAtLastError(void);
int cudaPeekAtLastError(void)
{
    return last_error;
}

int cudaGetLastError(void)
{
    const int code = last_error;
    last_error = CUDA_SUCCESS;
    return code;
}
