/*
 * What Genesis is told of streams and captures, and when; heap.c takes Genesis's place. The
 * argument names the case.
 */
#include "heap.h"
#include "preload.h"

#include <stdarg.h>

int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuCtxPopCurrent_v2(void **context);
int cuCtxDestroy_v2(void *context);
int cuDevicePrimaryCtxReset_v2(int device);
int cuGreenCtxDestroy(void *context);
int cuStreamDestroy_v2(stream_t stream);

static stream_t made(void) {
    stream_t stream;
    CHECK_OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    return stream;
}

/* Memory in the order of the stream, which heap.c does not have: CUDA serves it. */
static stream_t named(void) {
    stream_t stream = made();
    void *block = NULL;
    CHECK_OK(cudaMallocAsync(&block, KIB, stream));
    return stream;
}

/* What Genesis was told since the last call of this. */
static void expect_said(const char *format, ...) {
    const char *(*ask)(void);
    char expected[512];
    va_list arguments;
    *(void **)&ask = genesis_function("heap_said");
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    const char *said = ask();
    if (strcmp(said, expected)) {
        fprintf(stderr, "said \"%s\", not \"%s\"\n", said, expected);
        exit(1);
    }
}

static unsigned long long handle(stream_t stream) { return ADDRESS(stream); }

/* Streams are destroyed, at both levels. */
static void streams(void) {
    stream_t first = named(), second = made();
    expect_said("GENESIS_STREAM_IDS=off;");
    CHECK_OK(cudaStreamDestroy(first));
    expect_said("forget %llx;", handle(first));
    CHECK_OK(cuStreamDestroy_v2(second));
    expect_said("forget %llx;", handle(second));
    CHECK(cudaStreamDestroy(NULL) != OK);
    expect_said("");
}

/* The user wants the driver to be asked for ids of streams. */
static void ids(void) {
    named();
    expect_said("");
}

/* Streams end with their contexts: the program's own, green ones, primary ones. */
static void contexts(void) {
    stream_t plain = named(), green = made(), own;
    void *context = NULL, *popped = NULL;
    expect_said("GENESIS_STREAM_IDS=off;");
    CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
    own = made();
    CHECK_OK(cuCtxPopCurrent_v2(&popped));
    /* Genesis learns of the stream when memory is freed in its order. */
    CHECK_OK(cudaFreeAsync(HEAP_BLOCK, own));
    CHECK_OK(cuCtxDestroy_v2(context));
    expect_said("forget %llx;", handle(own));
    beyond_set_green(green, &plain);
    CHECK_OK(cudaFreeAsync(HEAP_BLOCK, green));
    CHECK_OK(cuGreenCtxDestroy(&plain));
    expect_said("forget %llx;", handle(green));
    CHECK_OK(cuGreenCtxDestroy(&plain));
    expect_said("");
    CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
    expect_said("forget %llx;", handle(plain));
}

/* The same by the runtime; a capture also ends with its device's context. */
static void reset(void) {
    stream_t stream = named();
    expect_said("GENESIS_STREAM_IDS=off;");
    CHECK_OK(cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
    CHECK_OK(cudaDeviceReset());
    expect_said("begin 0;forget %llx;end 0;", handle(stream));
}

/* Captures begin and end, successfully or not. */
static void captures(void) {
    stream_t first = named(), second = made();
    void *graph = NULL;
    expect_said("GENESIS_STREAM_IDS=off;");
    CHECK_OK(cudaStreamBeginCapture(first, CAPTURE_RELAXED));
    expect_said("begin 0;");
    CHECK_OK(cudaStreamBeginCapture(second, CAPTURE_RELAXED));
    CHECK(cudaStreamBeginCapture(second, CAPTURE_RELAXED) != OK);
    expect_said("begin 0;begin 0;end 0;");
    CHECK_OK(cudaStreamEndCapture(second, &graph));
    expect_said("end 0;");
    CHECK(cudaStreamEndCapture(second, &graph) != OK);
    expect_said("");
    /* Invalidating a capture does not end it. */
    CHECK(cudaDeviceSynchronize() != OK);
    expect_said("");
    CHECK(cudaStreamEndCapture(first, &graph) != OK);
    expect_said("end 0;");
    /* A capture ends with its stream. */
    CHECK_OK(cudaStreamBeginCapture(first, CAPTURE_RELAXED));
    CHECK_OK(cudaStreamDestroy(first));
    expect_said("begin 0;forget %llx;end 0;", handle(first));
}

/* Genesis is opened while a stream is captured. */
static void opened_late(void) {
    stream_t first = made(), second = made();
    void *graph = NULL;
    CHECK_OK(cudaStreamBeginCapture(first, CAPTURE_RELAXED));
    CHECK_OK(cudaStreamBeginCapture(second, CAPTURE_RELAXED));
    CHECK_OK(cudaStreamEndCapture(second, &graph));
    CHECK(genesis_library() == NULL);
    void *block = NULL;
    CHECK_OK(cudaMalloc(&block, KIB));
    expect_said("GENESIS_STREAM_IDS=off;begin 0;");
    CHECK_OK(cudaStreamEndCapture(first, &graph));
    expect_said("end 0;");
}

/* Captures of streams of a device that is not the current one. */
static void devices(void) {
    stream_t first = named(), second;
    void *graph = NULL;
    expect_said("GENESIS_STREAM_IDS=off;");
    CHECK_OK(cudaSetDevice(1));
    second = made();
    CHECK_OK(cudaSetDevice(0));
    CHECK_OK(cudaStreamBeginCapture(second, CAPTURE_RELAXED));
    CHECK_OK(cudaStreamBeginCapture(first, CAPTURE_RELAXED));
    expect_said("begin 1;begin 0;");
    CHECK_OK(cudaStreamEndCapture(second, &graph));
    CHECK_OK(cudaStreamEndCapture(first, &graph));
    expect_said("end 1;end 0;");
}

int main(int count, char **arguments) {
    const struct { const char *name; void (*run)(void); } cases[] = {
        {"streams", streams}, {"ids", ids}, {"contexts", contexts}, {"captures", captures},
        {"reset", reset},        {"opened_late", opened_late}, {"devices", devices},
    };
    EXPECT(2, count);
    CHECK_OK(cudaSetDevice(0));
    for (size_t index = 0; index < LENGTH(cases); index++) {
        if (!strcmp(arguments[1], cases[index].name)) cases[index].run();
    }
    return 0;
}
