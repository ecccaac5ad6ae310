/*
 * What examples/onnxruntime.cpp uses of ONNX Runtime's C++ interface, stated from its documentation
 * and declared only. The real headers come with ONNX Runtime's own releases and with no wheel.
 */
#ifndef STAND_IN_ONNXRUNTIME_CXX_API_H
#define STAND_IN_ONNXRUNTIME_CXX_API_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

struct OrtStatus;
struct OrtCUDAProviderOptionsV2;
enum OrtLoggingLevel { ORT_LOGGING_LEVEL_WARNING = 2 };
enum OrtAllocatorType { OrtArenaAllocator = 1 };
enum OrtMemType { OrtMemTypeDefault = 0 };

struct OrtApi {
    OrtStatus *(*CreateCUDAProviderOptions)(OrtCUDAProviderOptionsV2 **out);
    OrtStatus *(*UpdateCUDAProviderOptions)(OrtCUDAProviderOptionsV2 *options,
                                            const char *const *keys, const char *const *values,
                                            std::size_t count);
    void (*ReleaseCUDAProviderOptions)(OrtCUDAProviderOptionsV2 *options);
};

namespace Ort {

const OrtApi &GetApi() noexcept;
void ThrowOnError(OrtStatus *status);

struct Env {
    Env(OrtLoggingLevel level, const char *name);
};

struct SessionOptions {
    SessionOptions();
    SessionOptions &AppendExecutionProvider_CUDA_V2(const OrtCUDAProviderOptionsV2 &options);
};

struct AllocatorWithDefaultOptions {
    AllocatorWithDefaultOptions();
};

struct RunOptions {
    explicit RunOptions(std::nullptr_t);
};

struct MemoryInfo {
    static MemoryInfo CreateCpu(OrtAllocatorType type, OrtMemType memory);
};

struct TensorTypeAndShapeInfo {
    std::vector<std::int64_t> GetShape() const;
};

struct TypeInfo {
    TensorTypeAndShapeInfo GetTensorTypeAndShapeInfo() const;
};

struct Value {
    template <typename T>
    static Value CreateTensor(const MemoryInfo &memory, T *data, std::size_t count,
                              const std::int64_t *shape, std::size_t dimensions);
};

struct AllocatedFree {
    void operator()(void *text) const;
};
using AllocatedStringPtr = std::unique_ptr<char, AllocatedFree>;

struct Session {
    Session(const Env &environment, const char *path, const SessionOptions &options);
    AllocatedStringPtr GetInputNameAllocated(std::size_t index,
                                             AllocatorWithDefaultOptions &allocator) const;
    AllocatedStringPtr GetOutputNameAllocated(std::size_t index,
                                              AllocatorWithDefaultOptions &allocator) const;
    TypeInfo GetInputTypeInfo(std::size_t index) const;
    std::vector<Value> Run(const RunOptions &options, const char *const *input_names,
                           const Value *inputs, std::size_t input_count,
                           const char *const *output_names, std::size_t output_count);
};

} // namespace Ort

#endif
