/* What the programs of this folder call of the CUDA runtime, and of simcuda, which they run on. */
#ifndef GENESIS_SIMCUDA_H
#define GENESIS_SIMCUDA_H

#include "../check.h"

/* More operations than any stream has. */
#define EVERYTHING 1000
#define CHECK_CUDA(call) CHECK((call) == 0)

enum { CUDA_ERROR_NOT_READY = 600 };

#ifdef __cplusplus
extern "C" {
#endif
int cudaSetDevice(int device);
int cudaStreamCreateWithFlags(genesis_stream *stream, unsigned flags);
int cudaStreamQuery(genesis_stream stream);
int cudaDeviceSynchronize(void);
int simcuda_set(const char *variable, const char *value);
int64_t simcuda_check(void);
void simcuda_violations_clear(void);
int64_t simcuda_advance(int device, genesis_stream stream, int64_t operations);
int simcuda_touch(int device, genesis_stream stream, void *address, size_t bytes, int writes);
#ifdef __cplusplus
}
#endif

/* Work on `stream` of `device` uses the block; returns whether it was allowed to. */
static inline int can_use(int device, genesis_stream stream, void *block, size_t size, int writes)
{
    simcuda_violations_clear();
    const int code = simcuda_touch(device, stream, block, size, writes);
    const int is_clean = simcuda_check() == 0;
    simcuda_violations_clear();
    return code == 0 && is_clean;
}

#endif /* GENESIS_SIMCUDA_H */
