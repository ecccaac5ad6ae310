/*
 * Genesis for C++17: owned buffers, an allocator for containers, errors as exceptions.
 *
 * Header-only, on top of genesis.h; link libgenesis.so. The library's C functions do not throw; a
 * status or NULL that they return becomes an exception here.
 *
 * OWNERSHIP. A genesis::buffer owns one block and frees it when it is destroyed; it can be moved
 * but not copied. A genesis::out_of_memory_callback is registered as long as it lives. Both may be
 * static and outlive everything except the library, and a program may exit with live blocks.
 *
 * DEVICE MEMORY. data() returns a device address. Code on the host may read or write through it
 * only with the host backend (GENESIS_BACKEND=host, real bytes in host memory). With CUDA the
 * pointer is for kernels and cudaMemcpyAsync, and dereferencing it on the host is a segmentation
 * fault. A genesis::buffer never accesses its bytes, so it works with both.
 *
 * CONTAINERS. genesis::allocator<T> is a standard allocator, but containers construct their
 * elements on the host. With the host backend every container works. With CUDA only a vector
 * works, with trivially copyable and trivially destructible elements, and only if no element
 * passes through the host: make it with its full size, v(count), and use data() and size(). Do not
 * use operator[], push_back, a resize that grows, a copy or a comparison. The allocator's
 * construct() without a value default-initialises, so that v(count) does not access memory:
 * elements of types such as float or int keep the bytes that are there, where std::allocator would
 * write zeros. Device memory is not zeroed.
 *
 * STREAMS. A buffer or container belongs to the stream it was made on. genesis.h says what may use
 * it; call record_stream() for every other stream that does. Allocators are equal if device and
 * stream are, so that one container can take over another's memory. A copied container keeps its
 * source's device and stream; assigning or swapping whole containers moves device and stream along
 * with the memory.
 *
 * THREADS. As in genesis.h. One buffer or container is for one thread at a time.
 */
#ifndef GENESIS_ALLOCATOR_HPP
#define GENESIS_ALLOCATOR_HPP

#include "../genesis.h"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace genesis {

/* A failed call: its status, and the library's message. */
class error : public std::runtime_error {
public:
    error(genesis_status status, const std::string &message)
        : std::runtime_error(message), status_(status)
    {
    }

    genesis_status status() const noexcept { return status_; }

private:
    genesis_status status_;
};

/*
 * An allocation failed. status() is GENESIS_STATUS_OUT_OF_MEMORY if the device is full,
 * GENESIS_STATUS_LIMIT_REACHED if a limit of a tag or a pool stops it, and another one if the
 * device does not exist or the library cannot start. what() is the library's message.
 */
class out_of_memory : public std::bad_alloc {
public:
    out_of_memory(genesis_status status, const char *message) : status_(status)
    {
        try {
            message_ = std::make_shared<const std::string>(message);
        } catch (...) {
            /* Host memory is short as well: what() has a constant text. */
        }
    }

    const char *what() const noexcept override
    {
        return message_ ? message_->c_str() : genesis_status_text_get(status_);
    }

    genesis_status status() const noexcept { return status_; }

private:
    genesis_status status_;
    /* Shared, so that copying the exception cannot throw. */
    std::shared_ptr<const std::string> message_;
};

namespace detail {

/* Throws the last error, after a call that returned `status`. */
[[noreturn]] inline void raise(genesis_status status)
{
    const std::string message = genesis_last_error_message_get();
    throw error(status, message.empty() ? genesis_status_text_get(status) : message);
}

/* A block of `size` bytes; null for 0. Throws out_of_memory. */
inline void *allocate(std::size_t size, int device, genesis_stream stream)
{
    void *block = genesis_malloc(size, device, stream);
    if (block == nullptr && size != 0) {
        throw out_of_memory(genesis_last_error_get(), genesis_last_error_message_get());
    }
    return block;
}

} // namespace detail

/* Throws error unless `status` is success; for calls of genesis.h. */
inline void check(genesis_status status)
{
    if (status != GENESIS_STATUS_SUCCESS) {
        detail::raise(status);
    }
}

/* The statistics of a device. Throws error. */
inline genesis_stats stats(int device = 0)
{
    genesis_stats result{};
    result.struct_size = sizeof result;
    check(genesis_stats_get(device, &result));
    return result;
}

/* One block of device memory, freed when the buffer is destroyed. */
class buffer {
public:
    /* No memory. */
    buffer() noexcept = default;

    /* `size` bytes; none for 0. Contents are undefined. Throws out_of_memory. */
    explicit buffer(std::size_t size, int device = 0, genesis_stream stream = nullptr)
        : data_(detail::allocate(size, device, stream)), size_(size), device_(device),
          stream_(stream)
    {
    }

    buffer(buffer &&other) noexcept { swap(other); }

    buffer &operator=(buffer &&other) noexcept
    {
        buffer(std::move(other)).swap(*this);
        return *this;
    }

    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;

    ~buffer() { reset(); }

    /* The device address; null without memory. */
    void *data() const noexcept { return data_; }
    /* The size requested, in bytes. */
    std::size_t size() const noexcept { return size_; }
    int device() const noexcept { return device_; }
    genesis_stream stream() const noexcept { return stream_; }
    explicit operator bool() const noexcept { return data_ != nullptr; }

    /* Records that `stream` uses the memory, which is then not reused before it has finished.
     * The stream must exist until the buffer is reset. Throws error. */
    void record_stream(genesis_stream stream) const
    {
        if (data_ != nullptr) {
            check(genesis_block_record_stream(data_, stream));
        }
    }

    /* Returns the block to the caller, who frees it with genesis_free. */
    [[nodiscard]] void *release() noexcept
    {
        size_ = 0;
        return std::exchange(data_, nullptr);
    }

    /* Frees the memory; queued work of the buffer's stream may still use it. */
    void reset() noexcept
    {
        if (data_ != nullptr) {
            genesis_free(data_, size_, device_, stream_);
        }
        data_ = nullptr;
        size_ = 0;
    }

    void swap(buffer &other) noexcept
    {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(device_, other.device_);
        std::swap(stream_, other.stream_);
    }

    friend void swap(buffer &left, buffer &right) noexcept { left.swap(right); }

private:
    void *data_ = nullptr;
    std::size_t size_ = 0;
    int device_ = 0;
    genesis_stream stream_ = nullptr;
};

/* An allocator for containers; CONTAINERS above says what they may do with device memory. */
template <typename T> class allocator {
public:
    static_assert(alignof(T) <= 512, "blocks are aligned to 512 bytes");

    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    template <typename U> struct rebind {
        using other = allocator<U>;
    };

    explicit allocator(int device = 0, genesis_stream stream = nullptr) noexcept
        : device_(device), stream_(stream)
    {
    }

    template <typename U>
    allocator(const allocator<U> &other) noexcept : device_(other.device()), stream_(other.stream())
    {
    }

    /* Memory for `count` elements; null for 0. Throws bad_array_new_length, out_of_memory. */
    [[nodiscard]] T *allocate(size_type count)
    {
        if (count > max_size()) {
            throw std::bad_array_new_length();
        }
        return static_cast<T *>(detail::allocate(count * sizeof(T), device_, stream_));
    }

    void deallocate(T *elements, size_type count) noexcept
    {
        genesis_free(elements, count * sizeof(T), device_, stream_);
    }

    size_type max_size() const noexcept
    {
        return static_cast<size_type>(std::numeric_limits<difference_type>::max()) / sizeof(T);
    }

    /* An element without a value is not written if its type allows that, for device memory. */
    template <typename U>
    void construct(U *place) noexcept(std::is_nothrow_default_constructible<U>::value)
    {
        ::new (static_cast<void *>(place)) U;
    }

    template <typename U, typename First, typename... Rest>
    void construct(U *place, First &&first, Rest &&...rest)
    {
        ::new (static_cast<void *>(place))
            U(std::forward<First>(first), std::forward<Rest>(rest)...);
    }

    int device() const noexcept { return device_; }
    genesis_stream stream() const noexcept { return stream_; }

private:
    int device_;
    genesis_stream stream_;
};

template <typename T, typename U>
bool operator==(const allocator<T> &left, const allocator<U> &right) noexcept
{
    return left.device() == right.device() && left.stream() == right.stream();
}

template <typename T, typename U>
bool operator!=(const allocator<T> &left, const allocator<U> &right) noexcept
{
    return !(left == right);
}

/*
 * Calls a function when memory is short, as long as this object lives. The function gets the device
 * and about how many bytes are wanted, and returns true if it has freed anything. It may call the
 * library, and may run on several threads at once. An exception that leaves it counts as "nothing
 * freed". The object must not be destroyed inside the function or while another thread may run it.
 */
class out_of_memory_callback {
public:
    using function = std::function<bool(int device, std::size_t wanted_bytes)>;

    /* Throws error if the library cannot start. */
    explicit out_of_memory_callback(function callback)
        : callback_(std::make_unique<function>(std::move(callback)))
    {
        check(genesis_out_of_memory_callback_add(&ask, callback_.get(), &id_));
    }

    out_of_memory_callback(out_of_memory_callback &&other) noexcept
        : callback_(std::move(other.callback_)), id_(other.id_)
    {
    }

    out_of_memory_callback &operator=(out_of_memory_callback &&other) noexcept
    {
        out_of_memory_callback moved(std::move(other));
        std::swap(callback_, moved.callback_);
        std::swap(id_, moved.id_);
        return *this;
    }

    out_of_memory_callback(const out_of_memory_callback &) = delete;
    out_of_memory_callback &operator=(const out_of_memory_callback &) = delete;

    ~out_of_memory_callback()
    {
        if (callback_ != nullptr) {
            (void)genesis_out_of_memory_callback_remove(id_);
        }
    }

private:
    static int ask(void *user_data, int device, std::size_t wanted_bytes) noexcept
    {
        try {
            return (*static_cast<function *>(user_data))(device, wanted_bytes) ? 1 : 0;
        } catch (...) {
            return 0;
        }
    }

    /* The library has its address, so it stays in place when the object moves. */
    std::unique_ptr<function> callback_;
    std::uint64_t id_ = 0;
};

} // namespace genesis

#endif // GENESIS_ALLOCATOR_HPP
