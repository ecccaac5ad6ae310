/*
 * Genesis for MXNet: a storage manager with MXNet's own interface, of 1.x and of 2.x.
 *
 * Header-only, C++11 and later, on top of genesis.h and MXNet's <mxnet/storage.h>; link
 * libgenesis.so. genesis::mxnet::storage is an mxnet::Storage. MXNet uses it if its only storage is
 * made like this, in src/storage/storage.cc:
 *
 *     std::shared_ptr<Storage> Storage::_GetSharedRef() {
 *       static std::shared_ptr<Storage> inst(new genesis::mxnet::storage());
 *       return inst;
 *     }
 *
 * For an MXNet that is already built, preload a library with this function and Storage::Get
 * (docs/mxnet.md).
 *
 * CONTEXTS. GPU memory is Genesis's device memory; CPU and CPU-pinned memory is Genesis's host
 * memory. CPU-shared memory, which other processes use too, and every unknown context go to the
 * fallback that was passed to the constructor; without one they are refused.
 *
 * ORDER. MXNet's engine frees memory when the work that uses it is complete, so freed memory may be
 * reused at once on any stream: all memory of a GPU is allocated on the default stream. If a handle
 * has events (2.x, sync_obj), its memory is freed when they are complete; a request that would fail
 * waits for them.
 *
 * FAILURE. If there is no memory even after everything cached was released: a null dptr with
 * `failsafe`, which 2.x has; else dmlc::Error, which MXNet's own manager throws. Other failures
 * always throw. A size of 0 returns a null dptr and is no error.
 *
 * NAMES. profiler_scope and name of a handle (2.x) are the call site of its GPU memory in profiles,
 * leak reports and lists of live blocks.
 *
 * VARIABLES. The library reads MXNET_{GPU,CPU,CPU_PINNED}_MEM_POOL_TYPE and the others of MXNet's
 * pools, with MXNet's meanings, if Genesis's own are not set (`genesis options`).
 *
 * LOCKS. Calls for GPUs and for pinned memory hold GetMutex(kGPU), as MXNet's own manager does,
 * because other parts of MXNet hold it to prevent allocations. So an out-of-memory callback must
 * not call the storage.
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

/* The events of a handle; none in 1.x. */
template <typename Handle>
auto events_of(const Handle &handle, int) -> decltype(events(handle.sync_obj.events))
{
    return handle.sync_obj.events;
}

template <typename Handle> events events_of(const Handle &, long)
{
    return events();
}

/* While it lives, the thread may query events although it captures a graph, which would otherwise
 * break the capture. */
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

/* Returns true if every event is complete or destroyed. An error is left for the next user of the
 * stream. */
inline bool are_complete(const events &events)
{
    if (events.empty()) {
        return true;
    }
    const relaxed_capture relaxed;
    for (const std::weak_ptr<cudaEvent_t> &weak : events) {
        const std::shared_ptr<cudaEvent_t> event = weak.lock();
        if (event && cudaEventQuery(*event) == cudaErrorNotReady) {
            /* An incomplete event is not an error of the program. */
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

    /* Allocates handle->size bytes in handle->ctx, in the form of 1.x: handle->dptr. */
    void Alloc(Handle *handle) { allocate(handle, false); }

    /* The same in the form of 2.x; with `failsafe` a failure is a null dptr. */
    void Alloc(Handle *handle, bool failsafe) { allocate(handle, failsafe); }

    void SharedIncrementRefCount(Handle handle)
    {
        other(handle.ctx).SharedIncrementRefCount(std::move(handle));
    }

    /* Frees memory for reuse. */
    void Free(Handle handle)
    {
        switch (handle.ctx.dev_type) {
        case Context::kGPU: {
            std::lock_guard<std::mutex> lock(gpu_mutex());
#if MXNET_USE_CUDA
            /* Only now, so that the list is in the order of the frees. */
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

    /* Returns memory to the driver at once, unless it shares a segment with live memory. */
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

    /* Returns all cached memory of the context to the driver. */
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
            const bool is_shortage =
                status == GENESIS_STATUS_OUT_OF_MEMORY || status == GENESIS_STATUS_LIMIT_REACHED;
            if (!failsafe || !is_shortage) {
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

    /* The storage of contexts that are not served here. */
    ::mxnet::Storage &other(const Context &ctx) const
    {
        if (!fallback_) {
            throw dmlc::Error("no storage for device type " +
                              std::to_string(static_cast<int>(ctx.dev_type)) +
                              ": genesis::mxnet::storage was made without a fallback");
        }
        return *fallback_;
    }

    /* Calls `other` in the form of 2.x or of 1.x. */
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

    /* Frees memory whose events are complete, or all if it may wait; returns true if there was any.
     * The mutex is held. */
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
