/* Allocates and frees, whatever fails around it. Prints "done" if all memory was served. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "genesis.h"

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "no-files") == 0) {
        /* The next free descriptor is none. */
        int next = open("/dev/null", O_RDONLY);
        struct rlimit limit = {(rlim_t)next, (rlim_t)next};
        if (next < 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
            return 3;
        }
    }
    void *blocks[64] = {0};
    for (int round = 0; round < 2000; round++) {
        int index = (round * 7) % 64;
        genesis_free(blocks[index], 0, 0, NULL);
        blocks[index] = genesis_malloc(4096 + (size_t)round * 512, 0, NULL);
        if (blocks[index] == NULL) {
            printf("%s\n", genesis_last_error_message_get());
            return 1;
        }
    }
    for (int index = 0; index < 64; index++) {
        genesis_free(blocks[index], 0, 0, NULL);
    }
    /* These may fail, with a status. */
    genesis_profile_start();
    genesis_profile_write("/dev/full");
    genesis_profile_stop();
    genesis_snapshot_write("/dev/full");
    genesis_trace_start("/dev/full");
    genesis_trace_stop();
    genesis_plan_write("/dev/full");
    genesis_tag_push("tag");
    void *tagged = genesis_malloc(1 << 20, 0, NULL);
    genesis_tag_pop();
    if (genesis_tag_pause_with("tag", GENESIS_BACKUP_PAGEABLE, 0) == GENESIS_STATUS_SUCCESS) {
        genesis_tag_resume("tag");
    }
    /* This may not fail. */
    if (count > 1 && strcmp(arguments[1], "to-disk") == 0 &&
        (genesis_tag_pause_with("tag", GENESIS_BACKUP_DISK, 0) != GENESIS_STATUS_SUCCESS ||
         genesis_tag_resume("tag") != GENESIS_STATUS_SUCCESS)) {
        printf("%s\n", genesis_last_error_message_get());
        return 4;
    }
    genesis_free(tagged, 0, 0, NULL);
    if (genesis_cache_empty(0) != GENESIS_STATUS_SUCCESS) {
        return 2;
    }
    printf("done\n");
    return 0;
}
