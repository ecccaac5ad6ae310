/* The hooks that take plain types, called as PyTorch calls them. */
#include "../../c_tests/check.h"

#include <functional>
#include <string>

static std::string said;

static void remember(void *, genesis_log_level, const char *message)
{
    said += message;
    said += '\n';
}

static bool has_said(const char *part)
{
    const bool found = said.find(part) != std::string::npos;
    said.clear();
    return found;
}

static const std::function<void(int)> init = genesis_torch_init;
static const std::function<void()> reset = genesis_torch_reset;
static const std::function<void(double, int)> set_memory_fraction =
    genesis_torch_memory_fraction_set;
static const std::function<void *(void *, size_t *)> base_of = genesis_torch_base_get;
static const std::function<void(void *, genesis_stream)> record_stream =
    genesis_torch_record_stream;

static void initialisation()
{
    init(1);
    /* Memory of the host would be of no use to PyTorch's kernels. */
    CHECK(has_said("host"));
    init(3);
    CHECK(has_said("PyTorch sees 3 devices, genesis 1"));
}

static void emptying()
{
    genesis_free(block_of(4 * MIB, STREAM(1)), 0, 0, STREAM(1));
    CHECK(stats_of(0).reserved_bytes.current > 0);
    reset();
    CHECK(stats_of(0).reserved_bytes.current == 0);
}

static void fractions()
{
    double fraction = 0;
    set_memory_fraction(0.5, 0);
    CHECK_OK(genesis_memory_fraction_get(0, &fraction));
    CHECK(fraction == 0.5);
    CHECK(genesis_malloc(200 * MIB, 0, STREAM(1)) == NULL);
    /* PyTorch allows it: nothing more can be had. */
    set_memory_fraction(0, 0);
    CHECK(genesis_malloc(1, 0, STREAM(1)) == NULL);
    said.clear();
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, set_memory_fraction(1.5, 0));
    CHECK(has_said("genesis_torch_memory_fraction_set: "));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, set_memory_fraction(0.5, 9));
    set_memory_fraction(1, 0);
    genesis_free(block_of(200 * MIB, STREAM(1)), 0, 0, STREAM(1));
    reset();
}

/* Another process sees a whole allocation of the driver, and is told where in it to look. */
static void bases()
{
    unsigned char *first = block_of(1000, STREAM(1));
    unsigned char *second = block_of(5000, STREAM(1));
    size_t bytes = 0, bytes_of_second = 0;
    unsigned char *base = static_cast<unsigned char *>(base_of(first, &bytes));
    CHECK(base != NULL && base <= first && first + 1000 <= base + bytes);
    CHECK(bytes <= stats_of(0).reserved_bytes.current);
    /* Within a block as well as at its start. */
    unsigned char *base_of_second =
        static_cast<unsigned char *>(base_of(second + 4999, &bytes_of_second));
    CHECK(base_of_second <= second && second + 5000 <= base_of_second + bytes_of_second);
    if (strategy_is("Caching") || strategy_is("Elastic")) {
        CHECK(base == base_of_second && bytes == bytes_of_second);
        CHECK(bytes == stats_of(0).reserved_bytes.current);
    } else {
        CHECK(base == first && base_of_second == second);
    }
    CHECK(base_of(first, NULL) == base);

    int elsewhere;
    bytes = 77;
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, base_of(&elsewhere, &bytes));
    CHECK(base_of(&elsewhere, &bytes) == NULL && bytes == 77);
    CHECK(base_of(NULL, &bytes) == NULL);
    genesis_free(first, 0, 0, STREAM(1));
    CHECK(base_of(first, &bytes) == NULL);
    genesis_free(second, 0, 0, STREAM(1));
}

static void recorded_streams()
{
    unsigned char *block = block_of(MIB, STREAM(1));
    record_stream(block, STREAM(2));
    /* A tensor's memory may start within a block. */
    record_stream(block + 512, STREAM(3));
    genesis_free(block, 0, 0, STREAM(1));
    if (!strategy_is("Naive")) {
        CHECK(stats_of(0).active_bytes.current >= MIB);
        CHECK_OK(genesis_memory_compact(0, NULL));
    }
    CHECK(stats_of(0).active_bytes.current == 0);
    /* Tensors of others, and those without memory, are passed over quietly. */
    int elsewhere;
    said.clear();
    genesis_last_error_clear();
    record_stream(&elsewhere, STREAM(1));
    record_stream(NULL, STREAM(1));
    CHECK(said.empty() && genesis_last_error_get() == GENESIS_STATUS_SUCCESS);
}

int main()
{
    CHECK_OK(genesis_option_set("GENESIS_LOG", "warn"));
    CHECK_OK(genesis_log_callback_set(remember, NULL));
    initialisation();
    emptying();
    fractions();
    bases();
    recorded_streams();
    return 0;
}
