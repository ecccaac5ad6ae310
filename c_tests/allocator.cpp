/* genesis/allocator.hpp: buffers, containers, exceptions, callbacks. */
#include "check.h"

#include <genesis/allocator.hpp>

#include <deque>
#include <list>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

template <typename T> using vector = std::vector<T, genesis::allocator<T>>;

std::uint64_t live_bytes()
{
    return genesis::stats().requested_bytes.current;
}

/* What `body` throws, which must be an `Exception`. */
template <typename Exception, typename Body> Exception thrown_by(Body body)
{
    try {
        body();
    } catch (const Exception &exception) {
        return exception;
    }
    CHECK(!"an exception was thrown");
    std::abort();
}

void buffers()
{
    static_assert(!std::is_copy_constructible<genesis::buffer>::value, "");
    static_assert(!std::is_copy_assignable<genesis::buffer>::value, "");
    static_assert(std::is_nothrow_move_constructible<genesis::buffer>::value, "");
    static_assert(std::is_nothrow_move_assignable<genesis::buffer>::value, "");

    const genesis::buffer none;
    CHECK(!none && none.data() == nullptr && none.size() == 0);
    const genesis::buffer empty(0);
    CHECK(!empty && empty.size() == 0);
    empty.record_stream(STREAM(1));

    genesis::buffer first(1000, 0, STREAM(1));
    CHECK(first && first.size() == 1000 && first.device() == 0 && first.stream() == STREAM(1));
    fill(static_cast<unsigned char *>(first.data()), 1000, 5);
    void *address = first.data();
    genesis::buffer second(std::move(first));
    /* NOLINTNEXTLINE(bugprone-use-after-move, clang-analyzer-cplusplus.Move): it is promised. */
    CHECK(!first && first.size() == 0 && second.data() == address && live_bytes() == 1000);
    second.record_stream(STREAM(2));

    genesis::buffer third(2000);
    third = std::move(second);
    CHECK(third.data() == address && third.stream() == STREAM(1) && live_bytes() == 1000);
    CHECK(is_filled(static_cast<unsigned char *>(third.data()), 1000, 5));
    genesis::buffer &itself = third;
    third = std::move(itself);
    CHECK(third.data() == address && third.size() == 1000);

    genesis::buffer other(50);
    swap(third, other);
    CHECK(other.data() == address && third.size() == 50);
    void *released = other.release();
    CHECK(released == address && !other && live_bytes() == 1050);
    CHECK_FAILS(GENESIS_STATUS_SUCCESS, (other.reset(), GENESIS_STATUS_SUCCESS));
    genesis_free(released, 0, STREAM(1));
    third.reset();
    third.reset();
    CHECK(live_bytes() == 0);
}

void containers()
{
    {
        vector<int> numbers(genesis::allocator<int>(0, STREAM(3)));
        for (int number = 0; number < 100000; number++) {
            numbers.push_back(number);
        }
        CHECK(std::accumulate(numbers.begin(), numbers.end(), 0LL) == 4999950000LL);
        const vector<int> copy = numbers;
        CHECK(copy == numbers && copy.data() != numbers.data());
        CHECK(copy.get_allocator().stream() == STREAM(3));
        numbers.erase(numbers.begin(), numbers.begin() + 50000);
        numbers.shrink_to_fit();
        CHECK(numbers.front() == 50000 && numbers.size() == 50000);

        vector<std::string> words(3, "a word long enough to be on the heap of the host");
        words.emplace_back(40, 'x');
        words.insert(words.begin(), "first");
        CHECK(words.size() == 5 && words.front() == "first" &&
              words.back() == std::string(40, 'x'));

        std::list<double, genesis::allocator<double>> list{1.0, 2.0, 3.0};
        list.sort(std::greater<double>());
        CHECK(list.front() > 2.9);
        std::deque<int, genesis::allocator<int>> deque(1000, 7);
        deque.push_front(8);
        CHECK(deque.front() == 8 && deque.back() == 7);

        using pair = std::pair<const int, int>;
        std::map<int, int, std::less<int>, genesis::allocator<pair>> map;
        std::unordered_map<int, int, std::hash<int>, std::equal_to<int>, genesis::allocator<pair>>
            hashed;
        for (int key = 0; key < 1000; key++) {
            map[key] = hashed[key] = key * key;
        }
        CHECK(map.at(31) == 961 && hashed.at(999) == 998001 && map.size() == 1000);
        CHECK(live_bytes() > 100000 * sizeof(int));
    }
    CHECK(live_bytes() == 0);
}

/* Two allocators are equal when a block of one may be freed through the other's container. */
void equality_and_propagation()
{
    using traits = std::allocator_traits<genesis::allocator<int>>;
    static_assert(std::is_same<traits::rebind_alloc<char>, genesis::allocator<char>>::value, "");
    static_assert(!traits::is_always_equal::value, "");
    genesis::allocator<int> one(0, STREAM(1));
    genesis::allocator<int> two(0, STREAM(2));
    CHECK(one == one && one != two && one != genesis::allocator<int>(1, STREAM(1)));
    CHECK(genesis::allocator<char>(one) == one);
    CHECK(traits::select_on_container_copy_construction(two) == two);

    vector<int> left({1, 2, 3}, one), right({4, 5}, two);
    const int *memory = right.data();
    swap(left, right);
    CHECK(left.data() == memory && left.get_allocator() == two && right.get_allocator() == one);
    right = std::move(left);
    CHECK(right.data() == memory && right.get_allocator() == two);
    left = right;
    CHECK(left.get_allocator() == two && left == right && left.data() != memory);
    vector<int> elsewhere(std::move(right), one);
    CHECK(elsewhere.data() != memory && elsewhere == left);
}

struct with_default {
    int value = 17;
};

/* v(count) does not touch memory where the element's type allows. */
void elements_without_a_value()
{
    genesis::allocator<unsigned char> bytes(0, STREAM(4));
    unsigned char *place = bytes.allocate(4096);
    fill(place, 4096, 0xab);
    for (int index = 0; index < 4096; index++) {
        std::allocator_traits<genesis::allocator<unsigned char>>::construct(bytes, place + index);
    }
    CHECK(is_filled(place, 4096, 0xab));
    bytes.deallocate(place, 4096);
    const vector<with_default> defaults(10);
    CHECK(defaults[9].value == 17);
    const vector<int> sevens(10, 7);
    CHECK(sevens[9] == 7);
    const vector<float> room(MIB, genesis::allocator<float>(0, STREAM(5)));
    CHECK(room.size() == MIB && live_bytes() >= 4 * MIB);
}

void errors()
{
    genesis::allocator<std::uint64_t> words;
    const std::size_t most = words.max_size();
    thrown_by<std::bad_array_new_length>([&] { (void)words.allocate(most + 1); });
    thrown_by<std::bad_array_new_length>([&] { (void)words.allocate(SIZE_MAX); });
    CHECK(words.allocate(0) == nullptr);
    words.deallocate(nullptr, 0);

    const auto full = thrown_by<genesis::out_of_memory>([&] { (void)words.allocate(most); });
    CHECK(full.status() == GENESIS_STATUS_OUT_OF_MEMORY);
    CHECK(std::string(full.what()).find("larger than any device") != std::string::npos);
    /* It is what handlers of new expect, and may be copied without a throw. */
    static_assert(std::is_base_of<std::bad_alloc, genesis::out_of_memory>::value, "");
    static_assert(std::is_nothrow_copy_constructible<genesis::out_of_memory>::value, "");
    thrown_by<std::bad_alloc>([] { genesis::buffer absurd(SIZE_MAX); });

    const auto absent = thrown_by<genesis::out_of_memory>([] { genesis::buffer none(1, 99); });
    CHECK(absent.status() == GENESIS_STATUS_INVALID_DEVICE);
    CHECK(std::string(absent.what()) == "no device 99: there are 1");
    const auto failed = thrown_by<genesis::error>([] { (void)genesis::stats(99); });
    CHECK(failed.status() == GENESIS_STATUS_INVALID_DEVICE);
    CHECK(std::string(failed.what()) == "no device 99: there are 1");
    thrown_by<std::length_error>([&] { vector<std::uint64_t> impossible(most + 1); });
    CHECK(live_bytes() == 0);
}

void callbacks()
{
    genesis::check(genesis_memory_limit_set(0, 64 * MIB));
    genesis::check(genesis_option_set("GENESIS_LOG", "off"));
    genesis::buffer reserve(48 * MIB);
    int calls = 0;
    {
        genesis::out_of_memory_callback thrower([](int, std::size_t) -> bool { throw 1; });
        genesis::out_of_memory_callback callback([&](int device, std::size_t wanted_bytes) {
            CHECK(device == 0 && wanted_bytes >= 40 * MIB);
            ++calls;
            const bool frees = bool(reserve);
            reserve.reset();
            return frees;
        });
        genesis::out_of_memory_callback moved(std::move(callback));
        callback = std::move(moved);
        const genesis::buffer large(40 * MIB);
        CHECK(calls == 1 && !reserve);
        thrown_by<genesis::out_of_memory>([] { genesis::buffer another(40 * MIB); });
        CHECK(calls == 2);
    }
    thrown_by<genesis::out_of_memory>([] { genesis::buffer another(100 * MIB); });
    CHECK(calls == 2);
    genesis::check(genesis_memory_limit_set(0, 0));
}

void threads()
{
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int number = 0; number < 4; number++) {
        threads.emplace_back([number] {
            for (int round = 0; round < 200; round++) {
                vector<int> numbers(genesis::allocator<int>(0, STREAM(number)));
                numbers.assign(static_cast<std::size_t>(round) + 1, number);
                CHECK(std::accumulate(numbers.begin(), numbers.end(), 0) == number * (round + 1));
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(live_bytes() == 0);
}

/* Goes after main, as buffers of real programs do. */
genesis::buffer leftover;

} // namespace

int main()
{
    buffers();
    containers();
    equality_and_propagation();
    elements_without_a_value();
    errors();
    callbacks();
    threads();
    leftover = genesis::buffer(1000);
    return 0;
}
