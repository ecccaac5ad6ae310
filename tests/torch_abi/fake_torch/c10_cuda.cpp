/* The fake of libc10_cuda.so: the caching allocator. */
#include "c10.h"

namespace c10 {
namespace cuda {

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
