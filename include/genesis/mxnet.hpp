/*
 * Genesis for MXNet: a storage manager with MXNet's own interface, of 1.x and of 2.x.
 *
 * Header-only, C++11 and later, above genesis.h and MXNet's <mxnet/storage.h>; link libgenesis.so.
 * genesis::mxnet::storage is an mxnet::Storage. MXNet takes it in place of its own where it makes
 * its only one, in src/storage/storage.cc:
 *
 *     std::shared_ptr<Storage> Storage::_GetSharedRef() {
 *       static std::shared_ptr<Storage> inst(new genesis::mxnet::storage());
 *       return inst;
 *     }
 *
 * and a library with this function and Storage::Get, preloaded, does it for an MXNet that is
 * built already (docs/mxnet.md).
 *
 * CONTEXTS. GPU memory is Genesis's device memory; CPU and CPU-pinned memory come from its pools
 * of host memory. CPU-shared memory, which is other processes' too, goes to the fallback that
 * the storage was made with, as does every context unknown here; without one it is refused.
 *
 * ORDER. MXNet's engine frees memory when the work that uses it is done, so what is freed is used
 * again at once, on any stream: all of a GPU's memory is kept for the default stream. Where a
 * handle brings events (2.x, sync_obj), its memory is freed when they are complete; a request
 * that would fail waits for them.
 *
 * FAILURE. A request for which there is no memory, after everything cached has gone back: with
 * `failsafe`, which 2.x has, a null dptr; else dmlc::Error, which is what MXNet's own manager
 * throws. Other failures throw always. A size of 0 is a null dptr and no error.
 *
 * NAMES. profiler_scope and name of a handle (2.x) are the call site of its GPU memory in profiles,
 * leak reports and lists of live blocks.
 *
 * VARIABLES. MXNET_{GPU,CPU,CPU_PINNED}_MEM_POOL_TYPE and the others of MXNet's pools are read by
 * the library, with MXNet's meanings, where Genesis's own are not set (`genesis options`).
 *
 * LOCKS. Calls for GPUs and for pinned memory hold GetMutex(kGPU), as MXNet's own manager does:
 * other parts of MXNet hold it to keep allocations out. So an out-of-memory callback must not
 * call the storage.
 */
#ifndef GENESIS_MXNET_HPP
#define GENESIS_MXNET_HPP

#include "../genesis.h"

#include <dmlc/logging.h>
#include <mxnet/storage.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace genesis {
namespace mxnet {

namespace detail {

/* The text of a member that only 2.x has; "" in 1.x. Call them with 0. */
template <typename Handle>
auto scope_of(const Handle &handle, int) -> decltype(handle.profiler_scope.c_str())
{
    return handle.profiler_scope.c_str();
}

template <typename Handle> const char *scope_of(const Handle &, long)
{
    return "";
}

template <typename Handle>
auto name_of(const Handle &handle, int) -> decltype(handle.name.c_str())
{
    return handle.name.c_str();
}

template <typename Handle> const char *name_of(const Handle &, long)
{
    return "";
}

#if MXNET_USE_CUDA
typedef std::vector<std::weak_ptr<cudaEvent_t>> events;

/* The events that a handle brings; none in 1.x. */
template <typename Handle>
auto events_of(const Handle &handle, int) -> decltype(events(handle.sync_obj.events))
{
    return handle.sync_obj.events;
}

template <typename Handle> events events_of(const Handle &, long)
{
    return events();
}

/* While it lives the thread may ask for events though it captures a graph, which would be spoilt
 * otherwise. */
class relaxed_capture {
public:
    relaxed_capture() { exchange(); }
    ~relaxed_capture() { exchange(); }
    relaxed_capture(const relaxed_capture &) = delete;
    relaxed_capture &operator=(const relaxed_capture &) = delete;

private:
    void exchange() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/* Whether every event is complete; one that has gone is. What fails is told by whoever uses the
 * stream next. */
inline bool are_complete(const events &events)
{
    if (events.empty()) {
        return true;
    }
    const relaxed_capture relaxed;
    for (const std::weak_ptr<cudaEvent_t> &weak : events) {
        const std::shared_ptr<cudaEvent_t> event = weak.lock();
        if (event && cudaEventQuery(*event) == cudaErrorNotReady) {
            /* Being asked is not an error of the program's. */
            (void)cudaGetLastError();
            return false;
        }
    }
    return true;
}

/* Waits until every event is complete. */
inline void wait_for(const events &events)
{
    const relaxed_capture relaxed;
    for (const std::weak_ptr<cudaEvent_t> &weak : events) {
        const std::shared_ptr<cudaEvent_t> event = weak.lock();
        if (event) {
            (void)cudaEventSynchronize(*event);
        }
    }
}
#endif

} // namespace detail

/* MXNet's storage, served by Genesis. All threads. */
class storage : public ::mxnet::Storage {
public:
    typedef ::mxnet::Storage::Handle Handle;
    typedef ::mxnet::Context Context;

    /* `fallback` is for contexts that are neither GPU, CPU nor CPU-pinned; it may be null. */
    explicit storage(std::shared_ptr<::mxnet::Storage> fallback = nullptr)
        : fallback_(std::move(fallback))
    {
    }

    using ::mxnet::Storage::Alloc;

    /* Memory of handle->size bytes in handle->ctx, as 1.x asks for it: handle->dptr. */
    void Alloc(Handle *handle) { allocate(handle, false); }

    /* The same as 2.x asks for it; with `failsafe` a null dptr says that there is none. */
    void Alloc(Handle *handle, bool failsafe) { allocate(handle, failsafe); }

    void SharedIncrementRefCount(Handle handle)
    {
        other(handle.ctx).SharedIncrementRefCount(std::move(handle));
    }

    /* Gives memory back for reuse. */
    void Free(Handle handle)
    {
        switch (handle.ctx.dev_type) {
        case Context::kGPU: {
            std::lock_guard<std::mutex> lock(gpu_mutex());
#if MXNET_USE_CUDA
            /* Only now, so that what earlier frees wait for is in order of the frees. */
            free_completed(false);
            detail::events events = detail::events_of(handle, 0);
            if (!detail::are_complete(events)) {
                pending_.push_back(pending{handle.dptr, std::move(events)});
                return;
            }
#endif
            genesis_free(handle.dptr, handle.size, handle.ctx.real_dev_id(), nullptr);
            return;
        }
        case Context::kCPUPinned: {
            std::lock_guard<std::mutex> lock(gpu_mutex());
            genesis_host_free(handle.dptr);
            return;
        }
        case Context::kCPU:
            genesis_host_free(handle.dptr);
            return;
        default:
            other(handle.ctx).Free(std::move(handle));
        }
    }

    /* Gives memory back to the driver at once, as far as it shares nothing with live memory. */
    void DirectFree(Handle handle)
    {
        switch (handle.ctx.dev_type) {
        case Context::kGPU: {
            std::lock_guard<std::mutex> lock(gpu_mutex());
#if MXNET_USE_CUDA
            detail::wait_for(detail::events_of(handle, 0));
#endif
            (void)genesis_block_release(handle.dptr);
            return;
        }
        case Context::kCPUPinned: {
            std::lock_guard<std::mutex> lock(gpu_mutex());
            (void)genesis_host_release(handle.dptr);
            return;
        }
        case Context::kCPU:
            (void)genesis_host_release(handle.dptr);
            return;
        default:
            other(handle.ctx).DirectFree(std::move(handle));
        }
    }

    /* Gives everything cached for the context back to the driver. */
    void ReleaseAll(Context ctx)
    {
        switch (ctx.dev_type) {
        case Context::kGPU: {
            std::lock_guard<std::mutex> lock(gpu_mutex());
#if MXNET_USE_CUDA
            free_completed(true);
#endif
            (void)genesis_cache_empty(ctx.real_dev_id());
            return;
        }
        case Context::kCPUPinned: {
            std::lock_guard<std::mutex> lock(gpu_mutex());
            (void)genesis_host_cache_empty(GENESIS_HOST_KIND_PINNED);
            return;
        }
        case Context::kCPU:
            (void)genesis_host_cache_empty(GENESIS_HOST_KIND_PAGEABLE);
            return;
        default:
            other(ctx).ReleaseAll(ctx);
        }
    }

private:
    void allocate(Handle *handle, bool failsafe)
    {
        if (handle->size == 0) {
            handle->dptr = nullptr;
            return;
        }
        switch (handle->ctx.dev_type) {
        case Context::kGPU: {
            std::lock_guard<std::mutex> lock(gpu_mutex());
            handle->dptr = gpu_memory(*handle);
            break;
        }
        case Context::kCPUPinned: {
            std::lock_guard<std::mutex> lock(gpu_mutex());
            handle->dptr = genesis_host_malloc(handle->size, GENESIS_HOST_KIND_PINNED);
            break;
        }
        case Context::kCPU:
            handle->dptr = genesis_host_malloc(handle->size, GENESIS_HOST_KIND_PAGEABLE);
            break;
        default:
            ask_other(other(handle->ctx), handle, failsafe, 0);
            return;
        }
        if (handle->dptr == nullptr) {
            const genesis_status status = genesis_last_error_get();
            if (!failsafe || status != GENESIS_STATUS_OUT_OF_MEMORY) {
                throw dmlc::Error(std::string("Memory allocation failed ") +
                                  genesis_last_error_message_get());
            }
        }
    }

    /* Memory of a GPU, or null. The mutex is held. */
    void *gpu_memory(const Handle &handle)
    {
        const int device = handle.ctx.real_dev_id();
        const char *scope = detail::scope_of(handle, 0);
        const char *name = detail::name_of(handle, 0);
#if MXNET_USE_CUDA
        free_completed(false);
#endif
        void *memory = genesis_malloc_named(handle.size, device, nullptr, scope, name);
#if MXNET_USE_CUDA
        if (memory == nullptr && free_completed(true)) {
            memory = genesis_malloc_named(handle.size, device, nullptr, scope, name);
        }
#endif
        return memory;
    }

    std::mutex &gpu_mutex() { return GetMutex(Context::kGPU); }

    /* Who has what is not served here. */
    ::mxnet::Storage &other(const Context &ctx) const
    {
        if (!fallback_) {
            throw dmlc::Error("no storage for device type " +
                              std::to_string(static_cast<int>(ctx.dev_type)) +
                              ": genesis::mxnet::storage was made without a fallback");
        }
        return *fallback_;
    }

    /* Asks `other` as 2.x does, or as 1.x does. */
    template <typename Other>
    static auto ask_other(Other &other, Handle *handle, bool failsafe, int)
        -> decltype(other.Alloc(handle, failsafe))
    {
        other.Alloc(handle, failsafe);
    }

    template <typename Other> static void ask_other(Other &other, Handle *handle, bool, long)
    {
        other.Alloc(handle);
    }

    std::shared_ptr<::mxnet::Storage> fallback_;

#if MXNET_USE_CUDA
    /* Memory that is free once its events are complete. */
    struct pending {
        void *dptr;
        detail::events events;
    };

    /* Frees what has become complete, or, where the caller may wait, all; says whether there was
     * any. The mutex is held. */
    bool free_completed(bool may_wait)
    {
        bool has_freed = false;
        std::size_t kept = 0;
        for (std::size_t index = 0; index < pending_.size(); index++) {
            pending &memory = pending_[index];
            if (may_wait) {
                detail::wait_for(memory.events);
            } else if (!detail::are_complete(memory.events)) {
                std::swap(pending_[kept++], memory);
                continue;
            }
            genesis_free(memory.dptr, 0, nullptr);
            has_freed = true;
        }
        pending_.resize(kept);
        return has_freed;
    }

    std::vector<pending> pending_;
#endif
};

} // namespace mxnet
} // namespace genesis

#endif // GENESIS_MXNET_HPP
