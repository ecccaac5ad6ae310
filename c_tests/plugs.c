/* Functions in the shapes that other packages call: CuPy's and ONNX Runtime's, and DLPack's
 * tensors. */
#include "check.h"

/* As dlpack.h of DLPack 1 has them. */
typedef struct {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct managed {
    dl_tensor tensor;
    void *manager_context;
    void (*deleter)(struct managed *self);
} managed_tensor;

typedef struct versioned {
    uint32_t major;
    uint32_t minor;
    void *manager_context;
    void (*deleter)(struct versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} versioned_tensor;

enum { HOST = 1, CUDA = 2, FLOAT = 2 };

/* The DLDeviceType of blocks. */
static int32_t device_type(void)
{
    const char *backend = NULL;
    CHECK_OK(genesis_backend_get(&backend));
    return strcmp(backend, "cuda") == 0 ? CUDA : HOST;
}

static void be_quiet(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

static void cupys_allocator(void)
{
    genesis_block_info info;
    void *block = genesis_cupy_malloc(STREAM(3), 1000, 0);
    CHECK_OK(genesis_block_info_get(block, &info));
    CHECK(info.stream == STREAM(3) && info.requested_bytes == 1000);
    genesis_cupy_free(STREAM(3), block, 0);
    CHECK(stats_of(0).allocated_bytes.current == 0);
    genesis_cupy_free(STREAM(3), NULL, 0);
    CHECK(genesis_cupy_malloc(STREAM(3), 0, 0) == NULL);
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, genesis_cupy_malloc(NULL, 1, -1));
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, genesis_cupy_free(NULL, &info, 0));
}

static managed_tensor *tensor_of(genesis_dlpack_buffer *buffer, int dimensions,
                                 const int64_t *shape)
{
    void *tensor = NULL;
    CHECK_OK(genesis_dlpack_tensor_create(buffer, FLOAT, 32, 1, dimensions, shape, 0, &tensor));
    return (managed_tensor *)tensor;
}

static void tensors_share_a_buffer(void)
{
    const int64_t shape[] = {2, 3, 4};
    genesis_dlpack_buffer *buffer = NULL;
    CHECK_OK(genesis_dlpack_buffer_create(96, 0, STREAM(1), &buffer));
    unsigned char *data = (unsigned char *)genesis_dlpack_buffer_data_get(buffer);
    fill(data, 96, 7);
    managed_tensor *one = tensor_of(buffer, 3, shape);
    void *made = NULL;
    CHECK_OK(genesis_dlpack_tensor_create(buffer, FLOAT, 64, 1, 1, shape, 1, &made));
    versioned_tensor *other = (versioned_tensor *)made;
    genesis_dlpack_buffer_release(buffer);

    CHECK(one->tensor.data == data && one->tensor.device_type == device_type());
    CHECK(one->tensor.ndim == 3 && one->tensor.bits == 32 && one->tensor.lanes == 1);
    CHECK(memcmp(one->tensor.shape, shape, sizeof shape) == 0);
    CHECK(one->tensor.strides[0] == 12 && one->tensor.strides[1] == 4);
    CHECK(one->tensor.strides[2] == 1 && one->tensor.byte_offset == 0);
    CHECK(other->major == 1 && other->flags == 0 && other->tensor.data == data);
    CHECK(other->tensor.code == FLOAT && other->tensor.bits == 64 && other->tensor.shape[0] == 2);

    one->deleter(one);
    CHECK(is_filled(data, 96, 7));
    CHECK(stats_of(0).requested_bytes.current == 96);
    other->deleter(other);
    CHECK(stats_of(0).requested_bytes.current == 0);
}

static void small_and_wrong_shapes(void)
{
    const int64_t empty[] = {0, 3}, negative[] = {-1}, huge[] = {INT64_MAX, INT64_MAX};
    genesis_dlpack_buffer *buffer = NULL;
    CHECK_OK(genesis_dlpack_buffer_create(0, 0, NULL, &buffer));
    CHECK(genesis_dlpack_buffer_data_get(buffer) == NULL);
    managed_tensor *tensor = tensor_of(buffer, 2, empty);
    CHECK(tensor->tensor.data == NULL);
    tensor->deleter(tensor);
    genesis_dlpack_buffer_release(buffer);

    CHECK_OK(genesis_dlpack_buffer_create(4, 0, NULL, &buffer));
    tensor = tensor_of(buffer, 0, NULL);
    CHECK(tensor->tensor.ndim == 0);
    tensor->deleter(tensor);
    void *none = &none;
    const struct {
        int bits, dimensions;
        const int64_t *shape;
    } wrong[] = {{64, 0, NULL},   {32, 1, negative}, {32, 2, huge}, {32, 1, NULL},
                 {32, -1, empty}, {32, 1000, empty}, {0, 0, NULL}};
    for (size_t index = 0; index < LENGTH(wrong); index++) {
        CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                    genesis_dlpack_tensor_create(buffer, FLOAT, (uint8_t)wrong[index].bits, 1,
                                                 wrong[index].dimensions, wrong[index].shape, 0,
                                                 &none));
    }
    CHECK(none == &none);
    genesis_dlpack_buffer_release(buffer);
    CHECK(stats_of(0).allocated_bytes.current == 0);
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_dlpack_buffer_create(1, -1, NULL, &buffer));
}

static void streams_that_wait(void)
{
    CHECK_OK(genesis_stream_wait(0, STREAM(1), STREAM(2)));
    CHECK_OK(genesis_stream_wait(0, STREAM(1), STREAM(1)));
    CHECK_OK(genesis_stream_wait(0, LEGACY_STREAM, (genesis_stream)(uintptr_t)1));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_stream_wait(-1, STREAM(1), STREAM(2)));
}

static void onnxruntimes_functions(void)
{
    genesis_onnxruntime_functions functions, others;
    CHECK_OK(genesis_onnxruntime_functions_get(0, &functions));
    CHECK_OK(genesis_onnxruntime_functions_get(1, &others));
    CHECK(functions.alloc != others.alloc && functions.empty_cache != others.empty_cache);

    genesis_block_info info;
    void *block = functions.alloc(1000);
    CHECK_OK(genesis_block_info_get(block, &info));
    CHECK(info.stream == LEGACY_STREAM && info.device == 0 && info.requested_bytes == 1000);
    functions.free(block);
    CHECK(stats_of(0).allocated_bytes.current == 0);
    functions.free(NULL);
    CHECK(functions.alloc(0) == NULL);
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, functions.alloc(SIZE_MAX / 2));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, others.alloc(1));
    functions.empty_cache();
    CHECK(stats_of(0).reserved_bytes.current == 0);
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_onnxruntime_functions_get(-1, &others));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_onnxruntime_functions_get(32, &others));
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
    cupys_allocator();
    tensors_share_a_buffer();
    small_and_wrong_shapes();
    streams_that_wait();
    onnxruntimes_functions();
    return 0;
}
