/* The fake of libc10_cuda.so: streams, and the caching allocator. */
#include "c10.h"

namespace c10 {
namespace cuda {

/* The handle of PyTorch's own stream of each number. */
static const uintptr_t FIRST_OWN = 0x7000;
/* Numbers below this are those of PyTorch's own streams. */
static const int64_t OWN_COUNT = 64;
static thread_local CUDAStream current{0, 0};

CUDAStream::CUDAStream(int8_t device, int64_t number)
    : device_type_(1), device_(device), number_(number)
{
}

cudaStream_t CUDAStream::stream() const
{
    const bool is_own = 0 < number_ && number_ < OWN_COUNT;
    return reinterpret_cast<cudaStream_t>(number_ + (is_own ? FIRST_OWN : 0));
}

CUDAStream getCurrentCUDAStream(int8_t device)
{
    if (device != 0) {
        throw Error({"getCurrentCUDAStream", "c10_cuda.cpp", 0}, "no such device");
    }
    return current;
}

void set_current_stream(CUDAStream stream)
{
    current = stream;
}

Allocator::~Allocator() {}

void *cached_segment(Allocator &source, size_t size, int device, int &attempts)
{
    for (attempts = 1; attempts <= 3; attempts++) {
        /* Between two attempts PyTorch gives back what it has cached. */
        if (void *segment = source.raw_alloc(size, device)) {
            return segment;
        }
    }
    throw OutOfMemoryError({"cached_segment", "c10_cuda.cpp", 0}, "PyTorch's own message");
}

} // namespace cuda
} // namespace c10
