/* torch_memory_saver's functions, which no header declares: what a thread sets it can read, and
 * wrong arguments change nothing. */
#include "check.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
void tms_set_interesting_region(bool is_interesting_region);
bool tms_get_interesting_region(void);
void tms_set_current_tag(const char *tag);
const char *tms_get_current_tag(void);
void tms_set_enable_cpu_backup(bool enable_cpu_backup);
bool tms_get_enable_cpu_backup(void);
void tms_set_cpu_backup_backend(const char *backend);
const char *tms_get_cpu_backup_backend(void);
void tms_set_enable_disk_backup(bool enable_disk_backup);
bool tms_get_enable_disk_backup(void);
void tms_set_disk_backup_dir(const char *dir);
void set_memory_margin_bytes(uint64_t value);
void tms_set_retain_cpu_backup(bool retain_cpu_backup);
bool tms_get_retain_cpu_backup(void);
int tms_pause(const char *tag);
int tms_resume(const char *tag);
unsigned char *tms_get_cpu_backup_pointer(const unsigned char *gpu_ptr, uint64_t size);
#ifdef __cplusplus
}
#endif

static const char NOT_UTF8[] = {'\xFF', '\0'};

static void be_quiet(void *user_data, genesis_log_level level, const char *message)
{
    (void)user_data;
    (void)level;
    (void)message;
}

static void what_is_set_is_read(void)
{
    CHECK(!tms_get_interesting_region() && !tms_get_enable_cpu_backup());
    CHECK(!tms_get_enable_disk_backup() && !tms_get_retain_cpu_backup());
    CHECK(strcmp(tms_get_current_tag(), "default") == 0);
    CHECK(strcmp(tms_get_cpu_backup_backend(), "pinned") == 0);

    tms_set_current_tag("weights");
    tms_set_interesting_region(true);
    tms_set_enable_cpu_backup(true);
    tms_set_cpu_backup_backend("mmap");
    CHECK(tms_get_interesting_region() && tms_get_enable_cpu_backup());
    CHECK(strcmp(tms_get_current_tag(), "weights") == 0);
    CHECK(strcmp(tms_get_cpu_backup_backend(), "mmap") == 0);
    tms_set_cpu_backup_backend(NULL);
    CHECK(strcmp(tms_get_cpu_backup_backend(), "pinned") == 0);

    /* Both at once are only on the way from one to the other. */
    tms_set_enable_disk_backup(true);
    tms_set_enable_cpu_backup(false);
    CHECK(tms_get_enable_disk_backup() && !tms_get_enable_cpu_backup());
    tms_set_enable_disk_backup(false);
    tms_set_retain_cpu_backup(true);
    CHECK(tms_get_retain_cpu_backup());
    tms_set_retain_cpu_backup(false);
    tms_set_interesting_region(false);
}

static void wrong_arguments_change_nothing(void)
{
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, tms_set_current_tag(NULL));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, tms_set_current_tag(NOT_UTF8));
    CHECK(strcmp(tms_get_current_tag(), "weights") == 0);
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, tms_set_cpu_backup_backend("tape"));
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, tms_set_cpu_backup_backend(NOT_UTF8));
    CHECK(strcmp(tms_get_cpu_backup_backend(), "pinned") == 0);
    CHECK_REPORTS(GENESIS_STATUS_INVALID_ARGUMENT, tms_set_disk_backup_dir(NULL));
    CHECK_REPORTS(GENESIS_STATUS_FILE_FAILED, tms_set_disk_backup_dir("/dev/null/folder"));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, (genesis_status)tms_pause(NOT_UTF8));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, (genesis_status)tms_resume(NOT_UTF8));
    /* Nothing is to be paused of a tag that was never used. */
    CHECK(tms_pause("never") == 0 && tms_resume("never") == 0);
    CHECK(tms_get_cpu_backup_pointer(NULL, 0) == NULL);
    CHECK(tms_get_cpu_backup_pointer((const unsigned char *)NOT_UTF8, UINT64_MAX) == NULL);
}

static void a_region_is_paused_and_resumed(void)
{
    const size_t size = 3 * MIB;
    set_memory_margin_bytes(0);
    tms_set_enable_cpu_backup(true);
    tms_set_interesting_region(true);
    unsigned char *block = block_of(size, STREAM(1));
    tms_set_interesting_region(false);
    fill(block, size, 7);
    if (!strategy_is("Elastic")) {
        CHECK_FAILS(GENESIS_STATUS_NOT_SUPPORTED, (genesis_status)tms_pause("weights"));
    } else {
        CHECK(tms_get_cpu_backup_pointer(block, size) == NULL);
        CHECK(tms_pause("weights") == 0);
        const unsigned char *kept = tms_get_cpu_backup_pointer(block, size);
        CHECK(kept != NULL && is_filled(kept, size, 7));
        CHECK(tms_get_cpu_backup_pointer(block, size + 1) == NULL);
        CHECK(tms_resume(NULL) == 0);
        CHECK(is_filled(block, size, 7));
    }
    genesis_free(block, 0, STREAM(1));
}

int main(void)
{
    CHECK_OK(genesis_log_callback_set(be_quiet, NULL));
    what_is_set_is_read();
    wrong_arguments_change_nothing();
    a_region_is_paused_and_resumed();
    CHECK(stats_of(0).requested_bytes.current == 0);
    return 0;
}
