/*
 * ONNX Runtime's CUDA provider on Genesis's memory: runs a model whose inputs and outputs are
 * tensors of floats, and prints statistics of the memory.
 *
 * A program needs only use_genesis() of this file. The provider then computes on the legacy default
 * stream, and accepts no other.
 *
 * docs/onnxruntime.md has the commands that build and run it.
 */
#include <genesis.h>
#include <genesis/allocator.hpp>

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

/* The address of a function, as the provider's options want it. */
template <typename Function> std::string address_of(Function *function)
{
    return std::to_string(reinterpret_cast<std::uintptr_t>(function));
}

/* Makes sessions with these options compute on `device`, in Genesis's memory. */
void use_genesis(Ort::SessionOptions &options, int device)
{
    genesis_onnxruntime_functions functions;
    genesis::check(genesis_onnxruntime_functions_get(device, &functions));
    const char *const names[] = {"device_id", "gpu_external_alloc", "gpu_external_free",
                                 "gpu_external_empty_cache"};
    const std::string values[] = {std::to_string(device), address_of(functions.alloc),
                                  address_of(functions.free), address_of(functions.empty_cache)};
    const char *const texts[] = {values[0].c_str(), values[1].c_str(), values[2].c_str(),
                                 values[3].c_str()};

    const OrtApi &api = Ort::GetApi();
    OrtCUDAProviderOptionsV2 *provider = nullptr;
    Ort::ThrowOnError(api.CreateCUDAProviderOptions(&provider));
    OrtStatus *status = api.UpdateCUDAProviderOptions(provider, names, texts, 4);
    if (status == nullptr) {
        options.AppendExecutionProvider_CUDA_V2(*provider);
    }
    api.ReleaseCUDAProviderOptions(provider);
    Ort::ThrowOnError(status);
}

/* Runs the model once, with zeros; dimensions that it leaves open are 1. */
void run(Ort::Session &session)
{
    Ort::AllocatorWithDefaultOptions host;
    const auto input = session.GetInputNameAllocated(0, host);
    const auto output = session.GetOutputNameAllocated(0, host);
    const auto type = session.GetInputTypeInfo(0);
    auto shape = type.GetTensorTypeAndShapeInfo().GetShape();
    std::size_t count = 1;
    for (auto &dimension : shape) {
        dimension = std::max<std::int64_t>(dimension, 1);
        count *= static_cast<std::size_t>(dimension);
    }
    std::vector<float> zeros(count);
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    const auto tensor = Ort::Value::CreateTensor<float>(memory, zeros.data(), zeros.size(),
                                                        shape.data(), shape.size());
    const char *const inputs[] = {input.get()}, *const outputs[] = {output.get()};
    session.Run(Ort::RunOptions{nullptr}, inputs, &tensor, 1, outputs, 1);
}

} // namespace

int main(int count, char **arguments)
{
    if (count != 2) {
        std::fprintf(stderr, "usage: %s MODEL.onnx\n", arguments[0]);
        return 2;
    }
    Ort::Env environment(ORT_LOGGING_LEVEL_WARNING, "genesis");
    Ort::SessionOptions options;
    use_genesis(options, 0);
    Ort::Session session(environment, arguments[1], options);
    for (int pass = 0; pass < 3; pass++) {
        run(session);
    }
    const genesis_stats stats = genesis::stats();
    std::printf("%llu requests, %.1f %% of them from the cache, at most %zu KiB reserved\n",
                static_cast<unsigned long long>(stats.allocations), 100 * stats.hit_rate,
                static_cast<std::size_t>(stats.reserved_bytes.peak >> 10));
    return stats.allocations == 0;
}
