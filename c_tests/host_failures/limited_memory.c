/*
 * A limit of the process's addresses, just above what it uses. Requests are served while tables
 * have room, and then refused with a status; all else goes on. Once the limit is raised, requests
 * are served again. The device has addresses only, so that it is the library's own memory that is
 * short.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "../check.h"

#include <sys/resource.h>
#include <unistd.h>

/* Each stream has memory of its own, so that many small blocks are served without a call of the
 * driver. */
enum { STREAMS = 160, BLOCKS = 5000 };
#define LEFT_BYTES (1 * MIB)

static void *blocks[STREAMS][BLOCKS];
static int lines_of_log;

static void count_line(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data, (void)level;
    lines_of_log += strstr(message, "host's own memory is short") != NULL;
}

static size_t mapped_bytes(void)
{
    char line[128];
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
    fclose(file);
    const size_t pages = strtoul(line, NULL, 10);
    CHECK(pages > 0);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit_addresses(rlim_t bytes)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* Takes blocks until a request is refused; returns how many. */
static int take_all(int stream)
{
    for (int n = 0; n < BLOCKS; n++) {
        blocks[stream][n] = genesis_malloc(512, 0, STREAM(stream));
        if (blocks[stream][n] == NULL) {
            CHECK(genesis_last_error_get() == GENESIS_STATUS_OUT_OF_HOST_MEMORY);
            CHECK_MESSAGE("host's own memory is short");
            return n;
        }
    }
    return BLOCKS;
}

static void free_all(int stream)
{
    for (int n = 0; n < BLOCKS; n++) {
        genesis_free(blocks[stream][n], 0, 0, NULL);
        blocks[stream][n] = NULL;
    }
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(count_line, NULL));
    for (int stream = 0; stream < STREAMS; stream++) {
        genesis_free(block_of(512, STREAM(stream)), 0, 0, NULL);
    }
    limit_addresses(mapped_bytes() + LEFT_BYTES);
    size_t served = 0;
    for (int stream = 0; stream < STREAMS; stream++) {
        served += (size_t)take_all(stream);
    }
    /* Not one stream had all it asked for, or the limit was none. */
    CHECK(served > STREAMS && served < (size_t)STREAMS * 4000);
    CHECK(stats_of(0).requested_bytes.current == served * 512);
    CHECK_FAILS(GENESIS_STATUS_OUT_OF_HOST_MEMORY, genesis_profile_start());
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_HOST_MEMORY, genesis_malloc(512, 0, STREAM(STREAMS)));
    CHECK(lines_of_log >= 1 && lines_of_log < 10);
    CHECK_OK(genesis_block_record_stream(blocks[0][0], STREAM(1)));
    for (int stream = 0; stream < STREAMS; stream += 2) {
        free_all(stream);
    }
    CHECK_OK(genesis_cache_empty(0));

    limit_addresses(RLIM_INFINITY);
    for (int stream = 0; stream < STREAMS; stream += 2) {
        for (int n = 0; n < 100; n++) {
            blocks[stream][n] = block_of(512, STREAM(stream));
        }
    }
    CHECK_OK(genesis_profile_start());
    CHECK_OK(genesis_profile_stop());
    for (int stream = 0; stream < STREAMS; stream++) {
        free_all(stream);
    }
    CHECK(stats_of(0).requested_bytes.current == 0);
    printf("%zu blocks, %d lines\n", served, lines_of_log);
    return 0;
}
