/* Managed memory: more than the device has, advice and prefetches; and what optimize() did. */
#include "check.h"

static genesis_optimization optimize(int device)
{
    genesis_optimization done;
    memset(&done, 0x77, sizeof done);
    done.struct_size = sizeof done;
    CHECK_OK(genesis_memory_optimize(device, &done));
    return done;
}

/* The simulated device has 64 MiB. */
static void beyond(void)
{
    void *first = block_of(48 * MIB, STREAM(0)), *second = block_of(48 * MIB, STREAM(1));
    const genesis_stats stats = stats_of(0);
    CHECK(stats.managed_bytes == stats.reserved_bytes.current);
    CHECK(stats.oversubscribed_bytes >= 32 * MIB);
    CHECK(stats.peak_oversubscribed_bytes >= stats.oversubscribed_bytes);
    CHECK_OK(genesis_managed_prefetch(first, 48 * MIB, -1, STREAM(0)));
    CHECK_OK(genesis_managed_prefetch(second, 48 * MIB, 0, STREAM(1)));
    for (int advice = GENESIS_MANAGED_ADVICE_READ_MOSTLY;
         advice <= GENESIS_MANAGED_ADVICE_NOT_ACCESSED_BY; advice++) {
        CHECK_OK(genesis_managed_advise((char *)first + MIB, MIB, advice, -1));
    }
    CHECK(genesis_managed_advise(first, MIB, 7, 0) == GENESIS_STATUS_INVALID_ARGUMENT);
    CHECK(genesis_managed_advise(first, 64 * MIB, 1, 0) == GENESIS_STATUS_INVALID_ARGUMENT);
    CHECK(genesis_managed_prefetch(first, MIB, 7, STREAM(0)) == GENESIS_STATUS_INVALID_DEVICE);
    CHECK(genesis_managed_prefetch(NULL, MIB, 0, STREAM(0)) != GENESIS_STATUS_SUCCESS);
    genesis_free(second, 0, STREAM(1));
    genesis_free(first, 0, STREAM(0));
}

static void order(void)
{
    optimize(0);
    const genesis_optimization done = optimize(-1);
    CHECK(done.struct_size == sizeof done);
    CHECK(done.released_bytes == done.reserved_bytes - stats_of(0).reserved_bytes.current);
    if (!strategy_is("Naive")) {
        CHECK(done.released_bytes >= 48 * MIB && done.driver_calls > 0);
        CHECK(done.driver_nanoseconds > 0 && done.nanoseconds > 0);
    }
    CHECK(optimize(0).released_bytes == 0);
    genesis_optimization small;
    memset(&small, 0, sizeof small);
    CHECK(genesis_memory_optimize(0, &small) == GENESIS_STATUS_INVALID_ARGUMENT);
    CHECK(genesis_memory_optimize(9, &small) != GENESIS_STATUS_SUCCESS);
}

int main(void)
{
    CHECK_OK(genesis_option_set("GENESIS_SIM_MEMORY", "64MiB"));
    CHECK_OK(genesis_option_set("GENESIS_MANAGED", "64MiB"));
    beyond();
    order();
    return 0;
}
