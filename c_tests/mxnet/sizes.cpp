/*
 * What a request becomes: the size of the block that the storage makes for each of a table's
 * requests, which must be what the pool type named on the command line makes of it.
 */
#include "check.hpp"

namespace {

struct row {
    size_t request;
    size_t naive; /* MXNet's, which is Exact here */
    size_t round;
    size_t torch; /* Caching has PyTorch's */
};

const row TABLE[] = {
    {1, 4096, 4096, 512},
    {4097, 8192, 8192, 4608},
    {1048577, 1052672, 2097152, 1049088},
    {2097153, 4194304, 4194304, 2097664},
    {10485760, 10485760, 16777216, 10485760},
    {16777217, 18874368, 33554432, 16777728},
    {34603008, 35651584, 50331648, 34603008},
    {17179869185, 17181966336, 17196646400, 17179869696},
};

} // namespace

int main(int count, char **arguments)
{
    CHECK(count == 2);
    const std::string pool_type = arguments[1];
    genesis::mxnet::storage storage;
    if (pool_type == "Caching") {
        /* To cut blocks from: one that fills a segment of its own is as large as that. */
        storage.Free(storage.Alloc(20 * GIB, mxnet::Context::GPU(0)));
    }
    for (const row &row : TABLE) {
        const size_t expected = pool_type == "Naive"      ? row.naive
                                : pool_type == "Round"    ? row.round
                                : pool_type == "Unpooled" ? row.request
                                                          : row.torch;
        mxnet::Storage::Handle handle = storage.Alloc(row.request, mxnet::Context::GPU(0));
        CHECK(handle.dptr != nullptr && handle.size == row.request);
        genesis_block_info info;
        CHECK_OK(genesis_block_info_get(handle.dptr, &info));
        if (info.allocated_bytes != expected || info.requested_bytes != row.request) {
            fprintf(stderr, "%s: %zu bytes for %zu, not %zu\n", arguments[1], info.allocated_bytes,
                    row.request, expected);
            return 1;
        }
        storage.Free(handle);
    }
    return 0;
}
