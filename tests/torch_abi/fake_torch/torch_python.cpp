/*
 * The fake of libtorch_python.so: makes the allocator from an address, as Python gives one, and
 * turns exceptions into what Python would raise, in the order PyTorch does.
 */
#include "c10.h"

#include <cstring>
#include <functional>

static torch::Pluggable *allocator;

struct outcome {
    void *pointer;
    char raised[32];
    char message[1024];
    int attempts;
};

template <class Call> static outcome attempt(Call call)
{
    outcome result = {};
    const char *raised = "", *message = "";
    try {
        result.pointer = call(result);
        return result;
    } catch (const c10::OutOfMemoryError &error) {
        raised = "OutOfMemoryError", message = error.what_without_backtrace();
        std::strncpy(result.message, message, sizeof result.message - 1);
    } catch (const c10::Error &error) {
        raised = "RuntimeError", message = error.what_without_backtrace();
        std::strncpy(result.message, message, sizeof result.message - 1);
    } catch (...) {
        raised = "something else";
    }
    std::strncpy(result.raised, raised, sizeof result.raised - 1);
    return result;
}

extern "C" {

VISIBLE void torch_change_current_allocator(void *address)
{
    typedef std::function<void *(size_t, int, cudaStream_t)> function_object;
    torch::Pluggable::alloc_function alloc = nullptr;
    std::memcpy(&alloc, &address, sizeof alloc);
    /* Here, so that the code which calls the address is of this object. */
    function_object function = alloc;
    delete allocator;
    allocator = new torch::Pluggable(&function, alloc);
}

/* A tensor on the thread's current stream, which becomes that of `number`. */
VISIBLE void torch_tensor_on(int64_t number, size_t size, int device, outcome *result)
{
    const c10::cuda::CUDAStream stream(0, number);
    c10::cuda::set_current_stream(stream);
    *result = attempt([&](outcome &) { return allocator->allocate(size, device, stream.stream()); });
}

VISIBLE void torch_tensor(size_t size, int device, outcome *result)
{
    *result = attempt([&](outcome &) { return allocator->allocate(size, device); });
}

VISIBLE void torch_tensor_in_pool(size_t size, int device, outcome *result)
{
    *result = attempt([&](outcome &partial) {
        return c10::cuda::cached_segment(*allocator, size, device, partial.attempts);
    });
}

VISIBLE void torch_operator(void *(*registered)(size_t), size_t size, outcome *result)
{
    *result = attempt([&](outcome &) { return torch::call_operator(registered, size); });
}

/* Nothing is left of any exception. */
VISIBLE int torch_is_clean(void)
{
    return c10::errors_alive() == 0 && torch::frames_alive() == 0 && !std::uncaught_exceptions();
}

VISIBLE void torch_end(void)
{
    delete allocator;
    allocator = nullptr;
}
}
