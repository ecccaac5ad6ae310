/*
 * Private pools, begun, ended and released through the types PyTorch has for these hooks: a
 * real std::pair, a real std::function.
 *
 * Argument: how many pools are ended while threads are asking their filters.
 */
#include "../../c_tests/check.h"

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

typedef genesis_stream cudaStream_t;
typedef std::pair<unsigned long long, unsigned long long> MempoolId_t;
typedef std::function<bool(cudaStream_t)> Filter;

/* A hook as PyTorch has it from Python: an address, taken for a function of the type it wants. */
template <class Type, class Hook> static Type *hook(Hook *function)
{
    return reinterpret_cast<Type *>(reinterpret_cast<uintptr_t>(function));
}

static const std::function<void(int, MempoolId_t, Filter)> begin =
    hook<void(int, MempoolId_t, Filter)>(genesis_torch_pool_begin);
static const std::function<void(int, MempoolId_t)> end =
    hook<void(int, MempoolId_t)>(genesis_torch_pool_end);
static const std::function<void(int, MempoolId_t)> release =
    hook<void(int, MempoolId_t)>(genesis_torch_pool_release);

static const MempoolId_t POOL{0x1234567890abcdefULL, 0xfedcba0987654321ULL};
static const MempoolId_t OTHER_POOL{0, 7};

/* What happens to filters, in order: c for copied or moved, x for called, d for destroyed. */
static std::string history;
/* Filters that exist. */
static std::atomic<int> alive{0};
static std::atomic<int> messages{0};

static void count_message(void *, genesis_log_level, const char *)
{
    messages++;
}

/* A filter that passes one stream; PADDING makes it too large to be stored in place. */
template <size_t PADDING> struct Passes {
    cudaStream_t stream;
    std::string own;
    char padding[PADDING];

    explicit Passes(cudaStream_t passed) : stream(passed), own(100, '*'), padding() { alive++; }
    Passes(const Passes &other) : stream(other.stream), own(other.own), padding()
    {
        alive++;
        history += 'c';
    }
    Passes &operator=(const Passes &) = delete;
    ~Passes()
    {
        alive--;
        history += 'd';
    }
    bool operator()(cudaStream_t asked) const
    {
        CHECK(own == std::string(100, '*'));
        history += 'x';
        return asked == stream;
    }
};

static void *address_of_block(size_t size, cudaStream_t stream)
{
    unsigned char *block = block_of(size, stream);
    fill(block, size, 1);
    return block;
}

static void give_back(void *block)
{
    genesis_free(block, 0, 0, STREAM(0));
}

static void balance_is_kept()
{
    const genesis_stats before = stats_of(0);
    {
        const Filter filter = Passes<64>(STREAM(1));
        CHECK(alive == 1);
        history.clear();
        begin(0, POOL, filter);
        /* One is PyTorch's, the other the library's own. */
        CHECK(alive == 2);
    }
    CHECK(alive == 1);
    history.clear();
    give_back(address_of_block(1000, STREAM(1)));
    give_back(address_of_block(1000, STREAM(2)));
    CHECK(history == "xx");
    end(0, POOL);
    CHECK(history == "xxd" && alive == 0);
    /* Nobody is asked any more. */
    give_back(address_of_block(1000, STREAM(1)));
    CHECK(history == "xxd");
    release(0, POOL);
    CHECK_OK(genesis_cache_empty(0));
    CHECK(stats_of(0).reserved_bytes.current == before.reserved_bytes.current);
}

/* What is small and trivial is stored within the function itself. */
static void a_small_filter_is_called_too()
{
    int calls = 0;
    int *counted = &calls;
    begin(0, OTHER_POOL, [counted](cudaStream_t stream) {
        ++*counted;
        return stream == STREAM(1);
    });
    give_back(address_of_block(1000, STREAM(1)));
    give_back(address_of_block(1000, nullptr));
    CHECK(calls == 2);
    end(0, OTHER_POOL);
    release(0, OTHER_POOL);
    begin(0, OTHER_POOL, [](cudaStream_t stream) { return stream == nullptr; });
    give_back(address_of_block(1000, nullptr));
    end(0, OTHER_POOL);
    release(0, OTHER_POOL);
}

/* The memory of a pool is apart, stays where it is, and goes back with the last release. */
static void pools_are_apart()
{
    CHECK_OK(genesis_cache_empty(0));
    const size_t size = 4 * MIB;
    const cudaStream_t stream = STREAM(1);
    begin(0, POOL, Passes<64>(stream));
    void *inside = address_of_block(size, stream);
    void *outside = address_of_block(size, STREAM(2));
    give_back(inside);
    end(0, POOL);

    void *later = address_of_block(size, stream);
    CHECK(later != inside);
    give_back(later);
    CHECK_OK(genesis_cache_empty(0));

    begin(0, POOL, Passes<64>(stream));
    CHECK(address_of_block(size, stream) == inside);
    end(0, POOL);
    give_back(inside);
    release(0, POOL);
    const size_t held = stats_of(0).reserved_bytes.current;
    CHECK(held > size);
    release(0, POOL);
    CHECK(stats_of(0).reserved_bytes.current < held);
    give_back(outside);
    CHECK_OK(genesis_cache_empty(0));
    CHECK(stats_of(0).reserved_bytes.current == 0);
}

/* Asking CUDA about the default stream during a capture fails, and PyTorch's filter throws. */
static void a_filter_may_throw()
{
    const int before = messages;
    begin(0, POOL, [](cudaStream_t stream) -> bool {
        if (stream == nullptr) {
            throw std::runtime_error(std::string(200, '!'));
        }
        return true;
    });
    for (int round = 0; round < 3; round++) {
        give_back(address_of_block(MIB, nullptr));
        CHECK(std::uncaught_exceptions() == 0);
    }
    CHECK(messages == before + 1);
    try {
        throw std::runtime_error("the runtime is as before");
    } catch (const std::exception &) {
    }
    give_back(address_of_block(MIB, STREAM(1)));
    end(0, POOL);
    release(0, POOL);
}

struct CannotBeCopied {
    bool *may;
    char padding[64];

    explicit CannotBeCopied(bool *allowed) : may(allowed), padding() {}
    CannotBeCopied(const CannotBeCopied &other) : may(other.may), padding()
    {
        if (!*may) {
            throw std::runtime_error("no copy");
        }
    }
    CannotBeCopied &operator=(const CannotBeCopied &) = delete;
    bool operator()(cudaStream_t) const { return true; }
};

static void begin_at(const void *filter)
{
    genesis_torch_pool_begin(0, 1, 2, filter);
}

static void wrong_use()
{
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, begin_at(NULL));
    const Filter empty;
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, begin_at(&empty));
    CHECK_MESSAGE("empty");
    const size_t something_else[4] = {1, 2, 3, 4};
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, begin_at(something_else));
    CHECK_MESSAGE("libstdc++");
    bool may = true;
    const Filter stubborn = CannotBeCopied(&may);
    may = false;
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, begin_at(&stubborn));
    CHECK_MESSAGE("threw");
    CHECK(std::uncaught_exceptions() == 0);
    const Filter good = Passes<64>(STREAM(1));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, genesis_torch_pool_begin(99, 1, 2, &good));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, genesis_torch_pool_begin(-1, 1, 2, &good));
    CHECK(alive == 1);
    /* A pool is begun once at a time; the first filter stays. */
    begin(0, POOL, good);
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, begin(0, POOL, good));
    CHECK(alive == 2);
    end(0, POOL);
    CHECK(alive == 1);
    release(0, POOL);
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, end(0, POOL));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, release(0, POOL));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, end(99, POOL));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, release(99, POOL));
}

/* What a capture's filter points to. */
struct Graph {
    std::atomic<bool> exists{true};
    std::atomic<int> calls{0};
};

/* Once a pool is ended its graph may go, whatever other threads are asking for meanwhile. */
static void nobody_asks_after_the_end(size_t rounds)
{
    std::atomic<bool> is_over{false};
    std::vector<std::thread> threads;
    for (int index = 0; index < 4; index++) {
        threads.emplace_back([&is_over, index] {
            while (!is_over) {
                give_back(address_of_block(1000, STREAM(index)));
                /* Under valgrind threads take turns: each one ends without a lock held. */
                std::this_thread::yield();
            }
        });
    }
    std::vector<Graph> graphs(rounds);
    for (Graph &graph : graphs) {
        Graph *pointed = &graph;
        begin(0, POOL, [pointed](cudaStream_t stream) {
            CHECK(pointed->exists);
            /* One at a time, as in PyTorch's own allocator. */
            CHECK(pointed->calls++ == 0);
            std::this_thread::yield();
            CHECK(pointed->exists);
            pointed->calls--;
            return stream == STREAM(1);
        });
        std::this_thread::yield();
        end(0, POOL);
        graph.exists = false;
        release(0, POOL);
    }
    is_over = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    CHECK_OK(genesis_option_set("GENESIS_LOG", "warn"));
    CHECK_OK(genesis_log_callback_set(count_message, NULL));
    balance_is_kept();
    a_small_filter_is_called_too();
    pools_are_apart();
    a_filter_may_throw();
    wrong_use();
    nobody_asks_after_the_end(std::stoul(arguments[1]));
    CHECK(alive == 0);
    CHECK(stats_of(0).allocated_bytes.current == 0);
    CHECK_OK(genesis_cache_empty(0));
    CHECK(stats_of(0).reserved_bytes.current == 0);
    return 0;
}
