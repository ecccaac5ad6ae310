/*
 * Arenas, fixed-size pools and memory managers of genesis.h for C++17, and both kinds of resource
 * over them: std::pmr::memory_resource, for containers in host memory, and stream-ordered ones as
 * RMM and CCCL have them (cuda::mr), for device memory.
 *
 * OWNERSHIP. An object owns what it has handed out and frees it when it is destroyed; it can be
 * moved but not copied. A resource refers to an object, which must outlive it and does not move
 * meanwhile: objects keep their handle when they move, so a resource stays good.
 *
 * RESOURCES. deallocate of an arena's resource does nothing: the arena is reset. The stream-ordered
 * ones have allocate(stream, bytes, alignment), deallocate(stream, ptr, bytes, alignment), the same
 * pairs for both orders of arguments in use, allocate_sync and deallocate_sync, and comparison.
 * They need none of CCCL's headers. A stream passed to deallocate must be the one of the
 * allocation, or one that waits for it: the memory is reused on the object's own stream.
 *
 * ERRORS. A request that fails throws genesis::out_of_memory, a std::bad_alloc; other failures
 * throw genesis::error.
 */
#ifndef GENESIS_MEMORY_RESOURCE_HPP
#define GENESIS_MEMORY_RESOURCE_HPP

#include "allocator.hpp"

#include <initializer_list>
#include <memory_resource>
#include <vector>

namespace genesis {

/* Which memory an object hands out, and who calls it. */
struct memory {
    /* Memory of a device, reused on `stream`. */
    static genesis_memory_use on_device(int device = 0, genesis_stream stream = nullptr) noexcept
    {
        return {GENESIS_MEMORY_KIND_DEVICE, device, stream, 0};
    }

    /* The process's own memory. */
    static genesis_memory_use pageable() noexcept
    {
        return {GENESIS_MEMORY_KIND_PAGEABLE, 0, nullptr, 0};
    }

    /* The process's memory, locked for copies that a GPU makes itself. */
    static genesis_memory_use pinned() noexcept
    {
        return {GENESIS_MEMORY_KIND_PINNED, 0, nullptr, 0};
    }

    /* The same for objects that any thread calls at any time. */
    static genesis_memory_use for_any_thread(genesis_memory_use use) noexcept
    {
        use.any_thread = 1;
        return use;
    }
};

namespace detail {

/* `block`, which is null for a failed request only. */
inline void *required(void *block)
{
    if (block == nullptr) {
        throw out_of_memory(genesis_last_error_get(), genesis_last_error_message_get());
    }
    return block;
}

/* Objects hand out nothing for 0 bytes; C++ wants an address. */
inline std::size_t at_least_one(std::size_t size) noexcept
{
    return size == 0 ? 1 : size;
}

/* A handle that is destroyed by `Destroy`. */
template <typename Handle, void (*Destroy)(Handle *)> struct destroyer {
    void operator()(Handle *handle) const noexcept { Destroy(handle); }
};

template <typename Handle, void (*Destroy)(Handle *)>
using owned = std::unique_ptr<Handle, destroyer<Handle, Destroy>>;

} // namespace detail

/* Memory that is freed all at once. */
class arena {
public:
    /* Takes at least `chunk_bytes` at a time (0: 1 MiB), and holds at most `limit_bytes` (0: no
     * limit). Throws error. */
    explicit arena(genesis_memory_use use = memory::on_device(), std::size_t chunk_bytes = 0,
                   std::size_t limit_bytes = 0)
    {
        const genesis_arena_options options{sizeof options, use, chunk_bytes, limit_bytes};
        genesis_arena *made = nullptr;
        check(genesis_arena_create(&options, &made));
        handle_.reset(made);
    }

    /* Never null. Throws out_of_memory. */
    [[nodiscard]] void *allocate(std::size_t size, std::size_t alignment = 0)
    {
        const std::size_t bytes = detail::at_least_one(size);
        return detail::required(genesis_arena_allocate(get(), bytes, alignment));
    }

    [[nodiscard]] void *allocate_on(genesis_stream stream, std::size_t size,
                                    std::size_t alignment = 0)
    {
        const std::size_t bytes = detail::at_least_one(size);
        return detail::required(genesis_arena_allocate_on(get(), bytes, alignment, stream));
    }

    /* Nothing: memory is freed by reset or rewind. */
    void deallocate(void *) noexcept {}

    /* Frees everything. Throws error, and then frees nothing. */
    void reset() { check(genesis_arena_reset(get())); }

    genesis_arena_position mark()
    {
        genesis_arena_position position{};
        check(genesis_arena_mark(get(), &position));
        return position;
    }

    /* Frees what came after `position`. Throws error if the mark has ended. */
    void rewind(genesis_arena_position position) { check(genesis_arena_rewind(get(), position)); }

    void trim() { check(genesis_arena_trim(get())); }

    genesis_arena_stats stats() const
    {
        genesis_arena_stats result{};
        result.struct_size = sizeof result;
        check(genesis_arena_stats_get(get(), &result));
        return result;
    }

    genesis_arena *get() const noexcept { return handle_.get(); }

private:
    detail::owned<genesis_arena, genesis_arena_destroy> handle_;
};

/* Frees, at the end of a scope, what was allocated from an arena in it. */
class arena_scope {
public:
    explicit arena_scope(arena &of) : handle_(of.get()), position_(of.mark()) {}
    arena_scope(const arena_scope &) = delete;
    arena_scope &operator=(const arena_scope &) = delete;
    ~arena_scope() { (void)genesis_arena_rewind(handle_, position_); }

private:
    genesis_arena *handle_;
    genesis_arena_position position_;
};

/* Blocks of one size. */
class fixed_pool {
public:
    /* `count` blocks at once, and `growth` more when none is free (0: the pool is full then).
     * Throws error, also if memory is short. */
    fixed_pool(std::size_t block_bytes, std::size_t count, std::size_t growth = 0,
               genesis_memory_use use = memory::on_device(), std::size_t alignment = 0)
        : block_bytes_(block_bytes)
    {
        const genesis_fixed_pool_options options{sizeof options, use,   block_bytes,
                                                 alignment,      count, growth};
        genesis_fixed_pool *made = nullptr;
        check(genesis_fixed_pool_create(&options, &made));
        handle_.reset(made);
    }

    /* A block. Throws out_of_memory: the pool is full, or cannot grow. */
    [[nodiscard]] void *allocate() { return detail::required(genesis_fixed_pool_allocate(get())); }

    /* The same for a request of a size: one that is larger than a block throws out_of_memory. */
    [[nodiscard]] void *allocate(std::size_t size, std::size_t = 0)
    {
        check_size(size);
        return allocate();
    }

    [[nodiscard]] void *allocate_on(genesis_stream stream, std::size_t size, std::size_t = 0)
    {
        check_size(size);
        return detail::required(genesis_fixed_pool_allocate_on(get(), stream));
    }

    /* A wrong pointer is reported and harmless; genesis_last_error_get has the status. */
    void deallocate(void *block) noexcept { (void)genesis_fixed_pool_free(get(), block); }

    std::size_t block_bytes() const noexcept { return block_bytes_; }

    genesis_fixed_pool_stats stats() const
    {
        genesis_fixed_pool_stats result{};
        result.struct_size = sizeof result;
        check(genesis_fixed_pool_stats_get(get(), &result));
        return result;
    }

    genesis_fixed_pool *get() const noexcept { return handle_.get(); }

private:
    void check_size(std::size_t size) const
    {
        if (size > block_bytes_) {
            throw out_of_memory(GENESIS_STATUS_LIMIT_REACHED,
                                "the request is larger than a block of the pool");
        }
    }

    detail::owned<genesis_fixed_pool, genesis_fixed_pool_destroy> handle_;
    std::size_t block_bytes_;
};

/* Pools of a few sizes, and an arena behind them. */
class memory_manager {
public:
    memory_manager(std::initializer_list<genesis_memory_tier> tiers, std::size_t arena_bytes,
                   genesis_memory_use use = memory::on_device())
    {
        const genesis_memory_manager_options options{sizeof options, use, tiers.begin(),
                                                     tiers.size(), arena_bytes};
        genesis_memory_manager *made = nullptr;
        check(genesis_memory_manager_create(&options, &made));
        handle_.reset(made);
    }

    [[nodiscard]] void *allocate(std::size_t size, std::size_t alignment = 0)
    {
        const std::size_t bytes = detail::at_least_one(size);
        return detail::required(genesis_memory_manager_allocate(get(), bytes, alignment));
    }

    [[nodiscard]] void *allocate_on(genesis_stream stream, std::size_t size,
                                    std::size_t alignment = 0)
    {
        const std::size_t bytes = detail::at_least_one(size);
        return detail::required(
            genesis_memory_manager_allocate_on(get(), bytes, alignment, stream));
    }

    void deallocate(void *block) noexcept { (void)genesis_memory_manager_free(get(), block); }

    genesis_memory_manager_stats stats() const
    {
        genesis_memory_manager_stats result{};
        result.struct_size = sizeof result;
        check(genesis_memory_manager_stats_get(get(), &result));
        return result;
    }

    genesis_memory_manager *get() const noexcept { return handle_.get(); }

private:
    detail::owned<genesis_memory_manager, genesis_memory_manager_destroy> handle_;
};

/* A std::pmr::memory_resource over an arena, a pool or a manager of host memory. */
template <typename Object> class pmr_resource : public std::pmr::memory_resource {
public:
    explicit pmr_resource(Object &object) noexcept : object_(&object) {}

private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        return object_->allocate(bytes, alignment);
    }

    void do_deallocate(void *block, std::size_t, std::size_t) override
    {
        object_->deallocate(block);
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const auto *same = dynamic_cast<const pmr_resource *>(&other);
        return same != nullptr && same->object_ == object_;
    }

    Object *object_;
};

/* A stream-ordered resource over an arena, a pool or a manager of device memory. A type `Stream` is
 * anything that converts to genesis_stream, such as cudaStream_t, or that has a get() or value()
 * which does, such as cuda::stream_ref and rmm::cuda_stream_view. */
template <typename Object> class stream_resource {
public:
    static constexpr std::size_t default_alignment = 256;

    explicit stream_resource(Object &object) noexcept : object_(&object) {}

    template <typename Stream>
    [[nodiscard]] void *allocate(const Stream &stream, std::size_t bytes,
                                 std::size_t alignment = default_alignment)
    {
        return object_->allocate_on(handle_of(stream), bytes, alignment);
    }

    template <typename Stream>
    void deallocate(const Stream &, void *block, std::size_t,
                    std::size_t = default_alignment) noexcept
    {
        object_->deallocate(block);
    }

    /* The names of CCCL before 3, and those of RMM. */
    template <typename Stream>
    [[nodiscard]] void *allocate_async(std::size_t bytes, std::size_t alignment,
                                       const Stream &stream)
    {
        return allocate(stream, bytes, alignment);
    }

    template <typename Stream>
    void deallocate_async(void *block, std::size_t bytes, std::size_t alignment,
                          const Stream &stream) noexcept
    {
        deallocate(stream, block, bytes, alignment);
    }

    /* For use on the object's own stream. */
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment)
    {
        return object_->allocate(bytes, alignment);
    }

    void deallocate_sync(void *block, std::size_t, std::size_t = default_alignment) noexcept
    {
        object_->deallocate(block);
    }

    friend bool operator==(const stream_resource &left, const stream_resource &right) noexcept
    {
        return left.object_ == right.object_;
    }

    friend bool operator!=(const stream_resource &left, const stream_resource &right) noexcept
    {
        return !(left == right);
    }

private:
    static genesis_stream handle_of(genesis_stream stream) noexcept { return stream; }

    template <typename Stream>
    static auto handle_of(const Stream &stream) noexcept
        -> std::enable_if_t<!std::is_convertible_v<Stream, genesis_stream>,
                            decltype(static_cast<genesis_stream>(stream.get()))>
    {
        return stream.get();
    }

    template <typename Stream>
    static auto handle_of(const Stream &stream) noexcept
        -> std::enable_if_t<!std::is_convertible_v<Stream, genesis_stream>,
                            decltype(static_cast<genesis_stream>(stream.value()))>
    {
        return stream.value();
    }

    Object *object_;
};

} // namespace genesis

#endif // GENESIS_MEMORY_RESOURCE_HPP
