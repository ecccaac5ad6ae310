/*
 * A recorded program, run through genesis::mxnet::storage, and what MXNet's own pools would have
 * held for it.
 *
 *     replay TRACE [--same-as Naive|Round]
 *
 * TRACE is a GTR1 file, not compressed (traces/README.md). It prints a table: the highest that each
 * held, in bytes and over the most that was live, and how often each asked the driver for memory
 * or gave it back. With --same-as it ends with status 1 unless the storage, which must have been
 * set to that pool, held byte for byte what MXNet's would have at every step, with as many calls of
 * the driver.
 *
 * What MXNet has no call for, a stream that uses a block, is left out.
 */
#include "check.hpp"
#include "retelling.hpp"

#include <fstream>
#include <iterator>

namespace {

struct record {
    uint8_t operation;
    uint8_t device;
    uint16_t stream;
    uint32_t id;
    uint64_t bytes;
};
static_assert(sizeof(record) == 16, "as in the file");

enum { ALLOCATE = 1, FREE = 2, EMPTY_CACHE = 4 };

std::vector<record> read(const char *path)
{
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    if (text.compare(0, 5, "GTR1\n") != 0 || (text.size() - 5) % sizeof(record) != 0) {
        fprintf(stderr, "%s is not an uncompressed GTR1 trace\n", path);
        exit(2);
    }
    std::vector<record> records((text.size() - 5) / sizeof(record));
    memcpy(records.data(), text.data() + 5, text.size() - 5);
    return records;
}

/* The program on the storage and on MXNet's two pools, all of device 0. */
class run {
public:
    explicit run(uint64_t total_bytes)
        : naive_(retelling::rounding::naive, total_bytes),
          round_(retelling::rounding::round, total_bytes)
    {
    }

    void step(const record &record)
    {
        switch (record.operation) {
        case ALLOCATE: {
            const uint64_t padding_bytes = padding();
            naive_.set_padding(padding_bytes);
            round_.set_padding(padding_bytes);
            mxnet::Storage::Handle handle = storage_.Alloc(record.bytes, mxnet::Context::GPU(0));
            if (record.bytes > 0) {
                CHECK(handle.dptr != nullptr);
                CHECK(naive_.allocate(record.bytes) && round_.allocate(record.bytes));
            }
            live_bytes_ += record.bytes;
            live_peak_bytes_ = std::max(live_peak_bytes_, live_bytes_);
            live_[record.id] = handle;
            break;
        }
        case FREE: {
            const mxnet::Storage::Handle handle = live_.at(record.id);
            live_.erase(record.id);
            live_bytes_ -= handle.size;
            storage_.Free(handle);
            if (handle.size > 0) {
                naive_.free(handle.size);
                round_.free(handle.size);
            }
            break;
        }
        case EMPTY_CACHE:
            storage_.ReleaseAll(mxnet::Context::GPU(0));
            naive_.release_all();
            round_.release_all();
            break;
        }
    }

    /* Whether the storage holds what MXNet's pool would. */
    void compare(const retelling::pool &pool, size_t number) const
    {
        const genesis_stats stats = stats_of(0);
        if (stats.reserved_bytes.current != pool.held_bytes() ||
            stats.reserved_bytes.peak != pool.peak_bytes()) {
            fprintf(stderr, "record %zu: %llu bytes held, MXNet's pool would hold %llu\n", number,
                    (unsigned long long)stats.reserved_bytes.current,
                    (unsigned long long)pool.held_bytes());
            exit(1);
        }
    }

    void print() const
    {
        char pool_type[64];
        CHECK_OK(genesis_option_get("GENESIS_POOL_TYPE", pool_type, sizeof pool_type));
        const genesis_stats stats = stats_of(0);
        printf("live peak: %llu bytes\n", (unsigned long long)live_peak_bytes_);
        printf("%-18s %14s %12s %13s\n", "storage", "held at most", "over live", "driver calls");
        print(std::string("Genesis, ") + pool_type, stats.reserved_bytes.peak,
              stats.driver_memory_calls);
        print("MXNet's Naive", naive_.peak_bytes(), naive_.driver_calls());
        print("MXNet's Round", round_.peak_bytes(), round_.driver_calls());
    }

    void free_all()
    {
        for (const auto &entry : live_) {
            storage_.Free(entry.second);
        }
        live_.clear();
        CHECK(stats_of(0).allocations == stats_of(0).frees);
    }

    const retelling::pool &pool(const std::string &name) const
    {
        return name == "Naive" ? naive_ : round_;
    }

private:
    /* What the driver has taken beyond what is held. */
    static uint64_t padding()
    {
        size_t free_bytes = 0, total_bytes = 0;
        CHECK_OK(genesis_memory_info_get(0, &free_bytes, &total_bytes));
        const genesis_stats stats = stats_of(0);
        const uint64_t taken = total_bytes - (free_bytes - stats.inactive_bytes.current);
        return taken - stats.reserved_bytes.current;
    }

    void print(const std::string &name, uint64_t bytes, uint64_t calls) const
    {
        printf("%-18s %14llu %12.3f %13llu\n", name.c_str(), (unsigned long long)bytes,
               static_cast<double>(bytes) / static_cast<double>(live_peak_bytes_),
               (unsigned long long)calls);
    }

    genesis::mxnet::storage storage_;
    retelling::pool naive_;
    retelling::pool round_;
    std::unordered_map<uint32_t, mxnet::Storage::Handle> live_;
    uint64_t live_bytes_ = 0;
    uint64_t live_peak_bytes_ = 0;
};

} // namespace

int main(int count, char **arguments)
{
    const bool is_compared = count == 4 && strcmp(arguments[2], "--same-as") == 0;
    if (count != 2 && !is_compared) {
        fprintf(stderr, "usage: replay TRACE [--same-as Naive|Round]\n");
        return 2;
    }
    size_t total_bytes = 0;
    CHECK_OK(genesis_memory_info_get(0, nullptr, &total_bytes));
    run run(total_bytes);
    size_t number = 0;
    for (const record &record : read(arguments[1])) {
        run.step(record);
        if (is_compared) {
            run.compare(run.pool(arguments[3]), number);
        }
        number++;
    }
    if (is_compared) {
        CHECK(stats_of(0).driver_memory_calls == run.pool(arguments[3]).driver_calls());
    }
    run.print();
    run.free_all();
    return 0;
}
