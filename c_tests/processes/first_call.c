/* The first calls of the program name its phases; only then is memory allocated. */
#include "../check.h"

int main(void)
{
    CHECK_OK(genesis_range_push("setup"));
    CHECK_OK(genesis_mark_add("begin"));
    void *block = block_of(MIB, STREAM(0));
    CHECK_OK(genesis_range_pop());
    CHECK_OK(genesis_mark_add("end"));
    genesis_free(block, 0, STREAM(0));
    return 0;
}
