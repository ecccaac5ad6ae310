/*
 * genesis::mxnet::storage as MXNet uses it: contexts, failures, giving memory back, names.
 *
 * Compiled against the headers of MXNet 1.9.1 and of 2.0.0b1; what only 2.x has stands behind
 * its version. The machine has 100 MiB on each of two devices. An argument names the case, as some
 * need an environment of their own.
 */
#include "check.hpp"

#include <functional>
#include <thread>

namespace {

using mxnet::Context;
using Handle = mxnet::Storage::Handle;

const Context GPU = Context::GPU(0);

genesis_stats host_stats_of(int kind)
{
    genesis_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(genesis_host_stats_get(kind, &stats));
    return stats;
}

/* What the context's memory counts for. */
genesis_stats stats_of_context(const Context &context)
{
    switch (context.dev_type) {
    case Context::kGPU:
        return stats_of(context.dev_id);
    case Context::kCPUPinned:
        return host_stats_of(GENESIS_HOST_KIND_PINNED);
    default:
        return host_stats_of(GENESIS_HOST_KIND_PAGEABLE);
    }
}

void be_quiet(void *, genesis_log_level, const char *) {}

/* The message of the dmlc::Error that `call` throws. */
std::string thrown(const std::function<void()> &call)
{
    try {
        call();
    } catch (const dmlc::Error &error) {
        return error.what();
    }
    CHECK(!"it throws");
    return "";
}

bool has(const std::string &text, const char *part)
{
    return text.find(part) != std::string::npos;
}

void memory_of_every_context()
{
    genesis::mxnet::storage own;
    mxnet::Storage &storage = own;
    for (const Context &context : {GPU, Context::GPU(1), Context::CPUPinned(0), Context::CPU()}) {
        const genesis_stats before = stats_of_context(context);
        Handle handle = storage.Alloc(3 * MIB, context);
        CHECK(handle.dptr != nullptr && handle.size == 3 * MIB && handle.ctx == context);
        memset(handle.dptr, 7, handle.size);
        genesis_stats now = stats_of_context(context);
        CHECK(now.requested_bytes.current == before.requested_bytes.current + 3 * MIB);

        /* Freed memory is used again, without a word to the driver. */
        storage.Free(handle);
        const uint64_t calls = stats_of_context(context).driver_memory_calls;
        const bool is_pooled = context.dev_type != Context::kGPU || !strategy_is("Naive");
        Handle again;
        again.size = 3 * MIB;
        again.ctx = context;
        storage.Alloc(&again);
        CHECK(again.dptr != nullptr);
        CHECK(!is_pooled || again.dptr == handle.dptr);
        CHECK(!is_pooled || stats_of_context(context).driver_memory_calls == calls);
        storage.Free(again);

        storage.ReleaseAll(context);
        now = stats_of_context(context);
        CHECK(now.reserved_bytes.current == 0 && now.allocations == now.frees);

        Handle nothing = storage.Alloc(0, context);
        CHECK(nothing.dptr == nullptr);
        storage.Free(nothing);
        storage.DirectFree(nothing);
    }
}

void memory_freed_directly_goes_back()
{
    genesis::mxnet::storage storage;
    for (const Context &context : {GPU, Context::CPUPinned(0), Context::CPU()}) {
        /* A size that no pool rounds. */
        Handle kept = storage.Alloc(16 * MIB, context);
        Handle direct = storage.Alloc(16 * MIB, context);
        storage.Free(kept);
        const uint64_t held = stats_of_context(context).reserved_bytes.current;
        storage.DirectFree(direct);
        CHECK(stats_of_context(context).reserved_bytes.current == held - 16 * MIB);
        kept = storage.Alloc(16 * MIB, context);
        CHECK(stats_of_context(context).reserved_bytes.current == 16 * MIB);
        storage.Free(kept);
        storage.ReleaseAll(context);
    }
}

void failures()
{
    genesis::mxnet::storage storage;
    Handle cached = storage.Alloc(60 * MIB, GPU);
    storage.Free(cached);
    /* Everything cached goes back before a request fails. */
    Handle large = storage.Alloc(80 * MIB, GPU);
    CHECK(large.dptr != nullptr);
    std::string message = thrown([&] { storage.Alloc(60 * MIB, GPU); });
    CHECK(has(message, "Memory allocation failed out of memory: device=0"));
    message = thrown([&] { storage.Alloc(size_t(1) << 46, Context::CPU()); });
    CHECK(has(message, "Memory allocation failed pageable host memory: out of memory"));
    message = thrown([&] { storage.Alloc(60 * MIB, Context::GPU(7)); });
    CHECK(has(message, "no device 7"));

    Handle handle;
    for (const Context &context : {GPU, Context::CPUPinned(0), Context::CPU()}) {
        handle.size = context.dev_type == Context::kGPU ? 60 * MIB : size_t(1) << 46;
        handle.ctx = context;
        handle.dptr = &handle;
        storage.Alloc(&handle, true);
        CHECK(handle.dptr == nullptr);
    }
    /* failsafe is for memory that is short, and for nothing else. */
    handle.ctx = Context::GPU(7);
    CHECK(has(thrown([&] { storage.Alloc(&handle, true); }), "no device 7"));
#if MXNET_MAJOR >= 2
    mxnet::Storage &base = storage;
    CHECK(base.Alloc(60 * MIB, GPU, true).dptr == nullptr);
    handle = base.Alloc(10 * MIB, GPU, true);
    CHECK(handle.dptr != nullptr);
    base.Free(handle);
#endif
    storage.Free(large);
}

/* A storage of another's, which counts what it is asked. */
class other_storage : public mxnet::Storage {
public:
#if MXNET_MAJOR >= 2
    void Alloc(Handle *handle, bool failsafe) override
    {
        is_failsafe = failsafe;
#else
    void Alloc(Handle *handle) override
    {
#endif
        handle->dptr = this;
        calls++;
    }
    void SharedIncrementRefCount(Handle) override { calls++; }
    void Free(Handle handle) override
    {
        CHECK(handle.dptr == this);
        calls++;
    }
    void DirectFree(Handle) override { calls++; }
    void ReleaseAll(Context) override { calls++; }

    int calls = 0;
    bool is_failsafe = false;
};

void shared_memory_is_anothers()
{
    const std::shared_ptr<other_storage> other = std::make_shared<other_storage>();
    genesis::mxnet::storage storage(other);
    Handle handle = storage.Alloc(100, Context::CPUShared(0));
    CHECK(handle.dptr == other.get());
    storage.SharedIncrementRefCount(handle);
    storage.Free(handle);
    storage.DirectFree(handle);
    storage.ReleaseAll(handle.ctx);
    CHECK(other->calls == 5);
    storage.Alloc(&handle, true);
    CHECK(other->is_failsafe == (MXNET_MAJOR >= 2));

    genesis::mxnet::storage alone;
    CHECK(has(thrown([&] { alone.Alloc(100, Context::CPUShared(0)); }), "without a fallback"));
    CHECK(has(thrown([&] { alone.Free(handle); }), "device type 5"));
}

void threads_share_the_storage()
{
    genesis::mxnet::storage storage;
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; number++) {
        threads.emplace_back([&storage, number] {
            const Context contexts[] = {GPU, Context::GPU(1), Context::CPUPinned(0),
                                        Context::CPU()};
            for (int pass = 0; pass < 300; pass++) {
                const Context &context = contexts[(number + pass) % 4];
                Handle small = storage.Alloc(1 + pass * 7, context);
                Handle large = storage.Alloc(1 + pass * 4096, context);
                memset(small.dptr, number, small.size);
                memset(large.dptr, number, large.size);
                CHECK(is_filled(static_cast<unsigned char *>(small.dptr), small.size,
                                static_cast<unsigned char>(number)));
                storage.Free(small);
                pass % 5 == 0 ? storage.DirectFree(large) : storage.Free(large);
                if (pass % 50 == 0) {
                    storage.ReleaseAll(context);
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (const Context &context : {GPU, Context::GPU(1), Context::CPUPinned(0), Context::CPU()}) {
        const genesis_stats stats = stats_of_context(context);
        CHECK(stats.allocations == stats.frees);
        storage.ReleaseAll(context);
    }
}

/* A program that touches the reserve: what MXNet's pools do with their caches then. */
void the_reserve(bool is_touched)
{
    genesis::mxnet::storage storage;
    storage.Free(storage.Alloc(40 * MIB, GPU));
    CHECK(stats_of(0).reserved_bytes.current == 40 * MIB);
    Handle handle = storage.Alloc(50 * MIB, GPU);
    CHECK(stats_of(0).reserved_bytes.current == (is_touched ? 50 : 90) * MIB);
    storage.Free(handle);
    /* With less than the reserve left the driver is asked all the same. */
    handle = storage.Alloc(98 * MIB, GPU);
    CHECK(stats_of(0).reserved_bytes.current == 98 * MIB);
    storage.Free(handle);
}

void add_locations(void *user_data, const genesis_live_block *block)
{
    *static_cast<std::string *>(user_data) += std::string(block->location) + "\n";
}

/* Where blocks are said to come from: in lists of live blocks, and in a profile. */
void names(const char *profile)
{
    CHECK_OK(genesis_profile_start());
    genesis::mxnet::storage storage;
    Handle handle;
    handle.size = 100000;
    handle.ctx = GPU;
#if MXNET_MAJOR >= 2
    handle.profiler_scope = "resnet0:";
    handle.name = "conv0_weight";
#endif
    storage.Alloc(&handle);
    storage.Free(storage.Alloc(1000, GPU));
    std::string live;
    CHECK_OK(genesis_live_blocks_visit(0, 0, add_locations, &live));
    CHECK_OK(genesis_profile_stop());
    CHECK_OK(genesis_profile_write(profile));
    storage.Free(handle);
#if MXNET_MAJOR >= 2
    if (live != "conv0_weight\nresnet0:\n") {
        fprintf(stderr, "the live block is said to be from:\n%s", live.c_str());
        exit(1);
    }
#endif
}

} // namespace

int main(int count, char **arguments)
{
    const std::string test = count > 1 ? arguments[1] : "";
    CHECK_OK(genesis_log_callback_set(be_quiet, nullptr));
    if (test == "reserve" || test == "no reserve") {
        the_reserve(test == "reserve");
    } else if (test == "names") {
        CHECK(count == 3);
        names(arguments[2]);
    } else {
        memory_of_every_context();
        memory_freed_directly_goes_back();
        failures();
        shared_memory_is_anothers();
        threads_share_the_storage();
    }
    CHECK_OK(genesis_log_callback_set(nullptr, nullptr));
    return 0;
}
