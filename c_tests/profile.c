/*
 * Profiles and snapshots: begun and ended at any time, written in every form while they are made
 * and afterwards, with what the program says of itself; and never in the program's way.
 */
#include "check.h"

#include <unistd.h>

static char path[200];

static const char *named(const char *ending)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/genesis-profile-%ld%s", folder ? folder : "/tmp",
             (long)getpid(), ending);
    return path;
}

/* Whether the file last named is there and has `part` in it; it is removed. */
static int has(const char *part)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 0;
    }
    char *text = (char *)malloc(MIB);
    const size_t length = fread(text, 1, MIB, file);
    const size_t part_length = strlen(part);
    int found = 0;
    for (size_t at = 0; at + part_length <= length && !found; at++) {
        found = text[at] == part[0] && memcmp(text + at, part, part_length) == 0;
    }
    free(text);
    fclose(file);
    CHECK(remove(path) == 0);
    return found;
}

static void there_is_none_at_first(void)
{
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_profile_stop());
    CHECK_MESSAGE("no profile is being made");
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_profile_write(named(".json")));
    /* Annotations are allowed while nothing is recorded. */
    CHECK_OK(genesis_range_push("unheard"));
    CHECK_OK(genesis_range_pop());
    CHECK_OK(genesis_mark_add("unheard"));
    CHECK_OK(genesis_snapshot_write(named(".json")));
    CHECK(has("device_traces"));
}

static void refuses_what_it_cannot_write(void)
{
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_profile_write(NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_profile_write("profile.doc"));
    CHECK_MESSAGE(".html");
    CHECK_FAILS(GENESIS_STATUS_FILE_FAILED, genesis_profile_write("/nowhere/at/all.json"));
    CHECK_MESSAGE("/nowhere/at/all.json: No such file");
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_snapshot_write(NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_snapshot_write("snapshot.html"));
    CHECK_FAILS(GENESIS_STATUS_FILE_FAILED, genesis_snapshot_write("/nowhere/at/all.pickle"));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_range_push(NULL));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_mark_add(NULL));
}

static void is_written_in_every_form(void)
{
    static const struct {
        const char *ending;
        const char *part;
    } forms[] = {
        {".json", "\"format\":\"genesis profile 1\""},
        {".json", "forward \\\"1\\\""},
        {".html", "<html"},
        {".txt", "Genesis memory profile"},
        {".trace.json", "forward"},
        {".prom", "genesis_memory_allocated_bytes"},
        {".pickle", "device_traces"},
    };
    for (size_t form = 0; form < LENGTH(forms); form++) {
        CHECK_OK(genesis_profile_write(named(forms[form].ending)));
        CHECK(has(forms[form].part));
    }
    CHECK_OK(genesis_snapshot_write(named(".pickle")));
    CHECK(has("segments"));
}

int main(void)
{
    unsigned char *before = block_of(MIB, STREAM(0));
    there_is_none_at_first();
    CHECK_OK(genesis_profile_start());
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_profile_start());
    CHECK_MESSAGE("already");
    refuses_what_it_cannot_write();
    CHECK_OK(genesis_range_push("forward \"1\""));
    unsigned char *blocks[10];
    for (size_t block = 0; block < LENGTH(blocks); block++) {
        blocks[block] = block_of((block + 1) * 100 * KIB, STREAM(block % 2));
    }
    CHECK_OK(genesis_range_pop());
    CHECK_OK(genesis_mark_add("step 1"));
    is_written_in_every_form();
    for (size_t block = 0; block < LENGTH(blocks); block++) {
        genesis_free(blocks[block], 0, STREAM(block % 2));
    }
    genesis_free(before, 0, STREAM(0));
    CHECK_OK(genesis_profile_stop());
    is_written_in_every_form();

    /* Once more, while a recording is made as well. */
    CHECK_OK(genesis_profile_start());
    CHECK_OK(genesis_trace_start(named(".gtr")));
    genesis_free(block_of(KIB, STREAM(0)), 0, STREAM(0));
    CHECK_OK(genesis_profile_stop());
    CHECK_OK(genesis_trace_stop());
    CHECK(has("GTR1"));
    CHECK_OK(genesis_profile_write(named(".json")));
    CHECK(has("\"allocations\":1"));
    return 0;
}
