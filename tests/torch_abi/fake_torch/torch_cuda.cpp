/* The fake of libtorch_cuda.so: the pluggable allocator, and operators. */
#include "c10.h"

#include <atomic>
#include <functional>

static std::atomic<int> alive{0};

/* Something on each frame that has to be cleaned up. */
struct Frame {
    Frame() { alive++; }
    ~Frame() { alive--; }
};

namespace torch {

struct Pluggable::State {
    std::function<void *(size_t, int, cudaStream_t)> alloc;
    void *last;
};

Pluggable::Pluggable(void *function, alloc_function) : state_(new State)
{
    typedef std::function<void *(size_t, int, cudaStream_t)> function_object;
    state_->alloc = *static_cast<function_object *>(function);
}

Pluggable::~Pluggable() {}

void *Pluggable::allocate(size_t size, int device, cudaStream_t stream)
{
    Frame frame;
    return state_->last = state_->alloc(size, device, stream);
}

void *Pluggable::raw_alloc(size_t size, int device)
{
    Frame frame;
    return allocate(size, device);
}

void *call_operator(void *(*registered)(size_t), size_t size)
{
    Frame frame;
    return registered(size);
}

int frames_alive()
{
    return alive;
}

/* PyTorch throws it in many places, so its vtable is here too. */
VISIBLE void out_of_memory_elsewhere()
{
    throw c10::OutOfMemoryError({"elsewhere", "torch_cuda.cpp", 0}, "elsewhere");
}

} // namespace torch
