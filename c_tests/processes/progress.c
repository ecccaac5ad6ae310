/* A pause that takes longer than a second, because a callback does. */
#include "../check.h"

#include <time.h>

static void wait_a_while(void *user_data, size_t done_bytes, size_t total_bytes)
{
    const struct timespec time = {0, 600000000};
    (void)user_data;
    (void)done_bytes;
    (void)total_bytes;
    nanosleep(&time, NULL);
}

int main(void)
{
    CHECK_OK(genesis_tag_push("weights"));
    void *weights = genesis_malloc(70 * MIB, 0, STREAM(1));
    CHECK(weights != NULL);
    CHECK_OK(genesis_tag_pop());
    CHECK_OK(genesis_progress_callback_set(wait_a_while, NULL));
    CHECK_OK(genesis_tag_pause_with("weights", GENESIS_BACKUP_DISK, 0));
    CHECK_OK(genesis_progress_callback_set(NULL, NULL));
    CHECK_OK(genesis_tag_resume("weights"));
    genesis_free(weights, 0, STREAM(1));
    return 0;
}
