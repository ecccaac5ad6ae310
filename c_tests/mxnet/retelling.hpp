/*
 * MXNet's pooled storage manager, told again: what it would hold for a program.
 *
 * After src/storage/pooled_storage_manager.h of MXNet 2: its two roundings, its buckets of exact
 * sizes from which the last one freed is taken first, its reserve, and when it empties itself.
 * There are no addresses here, only sizes. One thing is not told as it is: Round keeps its buckets
 * in a table that ends at 16 GiB and is written past its end above; here they are a map.
 */
#ifndef MXNET_RETELLING_HPP
#define MXNET_RETELLING_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace retelling {

enum class rounding { naive, round };

/* MXNet's defaults. */
struct settings {
    uint64_t page_bytes = 4096;
    uint64_t large_bytes = 2 * 1024 * 1024;
    unsigned cutoff = 24;
    uint64_t reserve_percent = 5;
};

inline uint64_t multiple_of(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* ceil(log2(bytes)), as ilog2ul(bytes - 1) has it. */
inline unsigned log2_up(uint64_t bytes)
{
    unsigned log = 0;
    while ((uint64_t(1) << log) < bytes) {
        log++;
    }
    return log;
}

/* RoundAllocSize of RoundMultiple, and of RoundPower2. */
inline uint64_t block_bytes(rounding rounding, const settings &settings, uint64_t bytes)
{
    if (rounding == rounding::naive) {
        bytes = multiple_of(bytes, settings.page_bytes);
        return bytes > settings.large_bytes ? multiple_of(bytes, settings.large_bytes) : bytes;
    }
    const unsigned log = log2_up(bytes);
    if (log > settings.cutoff) {
        return multiple_of(bytes, uint64_t(1) << settings.cutoff);
    }
    return uint64_t(1) << std::max(log, log2_up(settings.page_bytes));
}

/* The pool of one device of `total_bytes`, all of which is the pool's to take. */
class pool {
public:
    pool(rounding rounding, uint64_t total_bytes, settings settings = {})
        : rounding_(rounding), settings_(settings), total_bytes_(total_bytes),
          reserve_bytes_(total_bytes * settings.reserve_percent / 100)
    {
    }

    /* What the driver takes beyond what is held: it counts whole pages, and MXNet asks it how
     * much is free. */
    void set_padding(uint64_t bytes) { padding_bytes_ = bytes; }

    /* False where MXNet fails: its message, or a null dptr. */
    bool allocate(uint64_t bytes)
    {
        const uint64_t block = block_bytes(rounding_, settings_, bytes);
        uint64_t &cached = cached_[block];
        if (cached > 0) {
            cached--;
            return true;
        }
        const uint64_t taken = held_bytes_ + padding_bytes_;
        const uint64_t free = total_bytes_ - std::min(total_bytes_, taken);
        const bool is_available = free > block && reserve_bytes_ <= free - block;
        if (!is_available) {
            release_all();
        }
        if (total_bytes_ - held_bytes_ < block) {
            /* It asks the driver, fails, releases everything, fails again. */
            release_all();
            if (total_bytes_ - held_bytes_ < block) {
                return false;
            }
        }
        held_bytes_ += block;
        peak_bytes_ = std::max(peak_bytes_, held_bytes_);
        driver_allocations_++;
        return true;
    }

    void free(uint64_t bytes) { cached_[block_bytes(rounding_, settings_, bytes)]++; }

    void release_all()
    {
        for (auto &bucket : cached_) {
            held_bytes_ -= bucket.first * bucket.second;
            driver_frees_ += bucket.second;
            bucket.second = 0;
        }
    }

    uint64_t held_bytes() const { return held_bytes_; }
    uint64_t peak_bytes() const { return peak_bytes_; }
    uint64_t driver_calls() const { return driver_allocations_ + driver_frees_; }

private:
    rounding rounding_;
    settings settings_;
    uint64_t total_bytes_;
    uint64_t reserve_bytes_;
    uint64_t held_bytes_ = 0;
    uint64_t padding_bytes_ = 0;
    uint64_t peak_bytes_ = 0;
    uint64_t driver_allocations_ = 0;
    uint64_t driver_frees_ = 0;
    /* Block size to how many are cached. */
    std::unordered_map<uint64_t, uint64_t> cached_;
};

} // namespace retelling

#endif /* MXNET_RETELLING_HPP */
