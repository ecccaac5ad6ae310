/*
 * Recording: one at a time, as often as one likes, to files that can be written; and never in
 * the program's way.
 */
#include "check.h"

#include <unistd.h>

static char path[200];

static long file_bytes(void)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return -1;
    }
    CHECK(fseek(file, 0, SEEK_END) == 0);
    const long bytes = ftell(file);
    fclose(file);
    return bytes;
}

/* The size of a trace with so many records. */
static long trace_bytes(long records)
{
    return 5 + 16 * records;
}

static void nothing_is_recorded_at_first(void)
{
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_trace_flush());
    CHECK_MESSAGE("nothing is being recorded");
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_trace_stop());
    CHECK_OK(genesis_trace_iteration(1));
}

static void refuses_files_that_cannot_be_written(void)
{
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_trace_start(NULL));
    CHECK_FAILS(GENESIS_STATUS_FILE_FAILED, genesis_trace_start("/nowhere/at/all.gtr"));
    CHECK_MESSAGE("/nowhere/at/all.gtr: No such file");
    CHECK_FAILS(GENESIS_STATUS_FILE_FAILED, genesis_trace_start("/dev/full"));
    CHECK_MESSAGE("/dev/full: No space left");
    CHECK_FAILS(GENESIS_STATUS_FILE_FAILED, genesis_trace_start("/"));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_trace_stop());
}

static void records_what_there_is(void)
{
    unsigned char *before = block_of(1000, STREAM(0));
    CHECK_OK(genesis_trace_start(path));
    CHECK(file_bytes() == trace_bytes(0));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_trace_start(path));
    CHECK_MESSAGE("already recording");

    unsigned char *block = block_of(2000, STREAM(0));
    CHECK_OK(genesis_block_record_stream(block, STREAM(1)));
    CHECK_OK(genesis_trace_iteration(7));
    CHECK_OK(genesis_trace_flush());
    CHECK(file_bytes() == trace_bytes(3));

    genesis_free(block, 0, STREAM(0));
    CHECK(genesis_malloc(0, 0, STREAM(0)) == NULL);
    CHECK_OK(genesis_cache_empty(-1));
    /* Not in the trace: live before, foreign, NULL, refused. */
    genesis_free(before, 0, STREAM(0));
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, genesis_free(path, 0, STREAM(0)));
    genesis_free(NULL, 0, STREAM(0));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_DEVICE, genesis_malloc(1, 77, STREAM(0)));
    CHECK_REPORTS(GENESIS_STATUS_OUT_OF_MEMORY, genesis_malloc(SIZE_MAX, 0, STREAM(0)));
    genesis_last_error_clear();
    CHECK_OK(genesis_trace_stop());
    CHECK(file_bytes() == trace_bytes(3 + 1 + 2 + 1));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_trace_stop());
}

int main(void)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/genesis-trace-%ld.gtr", folder != NULL ? folder : "/tmp",
             (long)getpid());
    CHECK_OK(genesis_option_set("GENESIS_LOG", "off"));
    nothing_is_recorded_at_first();
    for (int round = 0; round < 3; round++) {
        refuses_files_that_cannot_be_written();
        records_what_there_is();
    }
    CHECK(remove(path) == 0);
    return 0;
}
