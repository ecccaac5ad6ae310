/*
 * MXNet 2's storage interface as it is in a build with CUDA, in few words: what mxnet/storage.h of
 * the wheel 2.0.0b1 has where MXNET_USE_CUDA is 1, which needs CUDA's headers and cuDNN's.
 */
#ifndef MXNET_STORAGE_H_
#define MXNET_STORAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define MXNET_USE_CUDA 1

extern "C" {
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUstream_st *cudaStream_t;
enum cudaError_t { cudaSuccess = 0, cudaErrorNotReady = 600 };
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaGetLastError();
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode);

/* What the tests use in addition. */
typedef struct CUgraph_st *cudaGraph_t;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
}

namespace mxnet {

struct Context {
    enum DeviceType { kCPU = 1, kGPU = 2, kCPUPinned = 3, kCPUShared = 5 };

    DeviceType dev_type = kCPU;
    int32_t dev_id = 0;

    int real_dev_id() const { return dev_type == kCPUPinned || dev_type == kGPU ? dev_id : 0; }
};

class Storage {
public:
    struct SyncObj {
        std::vector<std::weak_ptr<cudaEvent_t>> events;
    };

    struct Handle {
        void *dptr{nullptr};
        size_t size{0};
        Context ctx;
        int shared_pid{-1};
        int shared_id{-1};
        std::string profiler_scope{"<unk>:"};
        std::string name{"unknown"};
        SyncObj sync_obj;
    };

    Handle Alloc(size_t size, Context ctx, bool failsafe = false)
    {
        Handle handle;
        handle.size = size;
        handle.ctx = ctx;
        this->Alloc(&handle, failsafe);
        return handle;
    }

    virtual void Alloc(Handle *handle, bool failsafe = false) = 0;
    virtual void SharedIncrementRefCount(Handle handle) = 0;
    virtual void Free(Handle handle) = 0;
    virtual void DirectFree(Handle handle) = 0;
    virtual void ReleaseAll(Context ctx) = 0;
    virtual ~Storage() {}

    std::mutex &GetMutex(Context::DeviceType device)
    {
        return device == Context::kCPU ? cpu_mutex_ : gpu_mutex_;
    }

private:
    std::mutex cpu_mutex_;
    std::mutex gpu_mutex_;
};

} // namespace mxnet

#endif /* MXNET_STORAGE_H_ */
