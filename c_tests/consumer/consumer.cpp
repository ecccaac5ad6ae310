/* A C++ program of somebody else's, built against the installed library. */
#include <genesis.h>
#include <genesis/allocator.hpp>

#include <iostream>
#include <numeric>
#include <string>
#include <vector>

int main()
{
    if (genesis_version_get() != std::string(EXPECTED_VERSION)) {
        std::cerr << "version " << genesis_version_get() << "\n";
        return 1;
    }
    const genesis::buffer buffer(1 << 20);
    std::vector<int, genesis::allocator<int>> numbers(1000);
    std::iota(numbers.begin(), numbers.end(), 0);
    if (genesis::stats().requested_bytes.current != (1 << 20) + 1000 * sizeof(int)) {
        return 1;
    }
    try {
        const genesis::buffer refused(std::size_t(1) << 60);
    } catch (const std::bad_alloc &error) {
        std::cout << error.what() << "\n";
        return 0;
    }
    return 1;
}
