/*
 * What of PyTorch's c10 the library finds by name: the same classes and functions under the
 * same mangled names, with objects that are counted.
 *
 * HIDE_OUT_OF_MEMORY, HIDE_CHECK_FAIL and HIDE_STREAMS take from sight what an older or newer
 * PyTorch might not have.
 */
#ifndef FAKE_TORCH_C10_H
#define FAKE_TORCH_C10_H

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#define VISIBLE __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))
#ifdef HIDE_OUT_OF_MEMORY
#define OUT_OF_MEMORY_VISIBILITY HIDDEN
#else
#define OUT_OF_MEMORY_VISIBILITY VISIBLE
#endif
#ifdef HIDE_CHECK_FAIL
#define CHECK_FAIL_VISIBILITY HIDDEN
#else
#define CHECK_FAIL_VISIBILITY VISIBLE
#endif
#ifdef HIDE_STREAMS
#define STREAMS_VISIBILITY HIDDEN
#else
#define STREAMS_VISIBILITY VISIBLE
#endif

typedef struct CUstream_st *cudaStream_t;

namespace c10 {

struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

class VISIBLE Error : public std::exception {
    std::string message_;
    std::vector<std::string> context_;
    std::shared_ptr<const std::string> backtrace_;
    mutable std::unique_ptr<std::string> what_;
    std::string what_without_backtrace_;
    const void *caller_;

public:
    Error(SourceLocation location, std::string message);
    Error(const Error &other);
    ~Error() override;
    const char *what() const noexcept override;
    virtual const char *what_without_backtrace() const noexcept;
};

/* As in PyTorch it has no member of its own, so each object that uses it has its vtable. */
class OUT_OF_MEMORY_VISIBILITY OutOfMemoryError : public Error {
    using Error::Error;
};

namespace detail {
[[noreturn]] CHECK_FAIL_VISIBILITY void torchCheckFail(const char *function, const char *file,
                                                       uint32_t line, const char *message);
}

/* Errors made and not destroyed. */
VISIBLE int errors_alive();

namespace cuda {

/* PyTorch's own streams have small numbers; for those of others the number is the handle. */
class VISIBLE CUDAStream {
    int8_t device_type_, device_;
    int64_t number_;

public:
    CUDAStream(int8_t device, int64_t number);
    cudaStream_t stream() const;
};

/* The calling thread's; throws for a device that PyTorch does not have. */
STREAMS_VISIBILITY CUDAStream getCurrentCUDAStream(int8_t device);
VISIBLE void set_current_stream(CUDAStream stream);

/* A source of memory, to PyTorch's caching allocator. */
struct VISIBLE Allocator {
    virtual void *raw_alloc(size_t size, int device) = 0;
    virtual ~Allocator();
};

/* The caching allocator wants a segment from `source`; says how often it had to ask. */
VISIBLE void *cached_segment(Allocator &source, size_t size, int device, int &attempts);

} // namespace cuda
} // namespace c10

namespace torch {

/* The fake of libtorch_cuda: an allocator made of a function. */
struct VISIBLE Pluggable : c10::cuda::Allocator {
    typedef void *(*alloc_function)(size_t, int, cudaStream_t);

    explicit Pluggable(void *invoker, alloc_function alloc);
    void *allocate(size_t size, int device, cudaStream_t stream = nullptr);
    void *raw_alloc(size_t size, int device) override;
    ~Pluggable() override;

private:
    struct State;
    std::unique_ptr<State> state_;
};

/* An operator of PyTorch that calls what somebody has registered. */
VISIBLE void *call_operator(void *(*registered)(size_t), size_t size);
/* Calls of PyTorch that have begun and neither returned nor been unwound. */
VISIBLE int frames_alive();

} // namespace torch

#endif
