/* The log callback: who is called with what, and when nobody is. */
#include "check.h"

typedef struct {
    int messages;
    genesis_log_level level;
    char text[1000];
} listener;

static void listen(void *user_data, genesis_log_level level, const char *message)
{
    listener *heard = (listener *)user_data;
    heard->messages++;
    heard->level = level;
    strncpy(heard->text, message, sizeof heard->text - 1);
    /* The library may be called from here. */
    CHECK(stats_of(0).struct_size == sizeof(genesis_stats));
    genesis_free(block_of(100, STREAM(7)), 0, STREAM(7));
}

/* Takes itself away. */
static void listen_once(void *user_data, genesis_log_level level, const char *message)
{
    listen(user_data, level, message);
    CHECK_OK(genesis_log_callback_set(listen, user_data));
}

static void provoke(void)
{
    int on_stack = 0;
    genesis_free(&on_stack, 0, STREAM(0));
}

int main(void)
{
    listener first, second;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    CHECK_OK(genesis_log_callback_set(listen_once, &first));
    provoke();
    CHECK(first.messages == 1 && first.level == GENESIS_LOG_LEVEL_ERROR);
    CHECK(strcmp(first.text, genesis_last_error_message_get()) == 0);
    CHECK(strchr(first.text, '\n') == NULL);
    provoke();
    CHECK(first.messages == 2);
    CHECK_OK(genesis_log_callback_set(listen, &second));
    provoke();
    CHECK(first.messages == 2 && second.messages == 1);

    /* Releases of cached memory are told from `info` on. */
    genesis_free(block_of(32 * MIB, STREAM(0)), 0, STREAM(0));
    CHECK_OK(genesis_cache_empty(0));
    CHECK(second.messages == 1);
    CHECK_OK(genesis_option_set("GENESIS_LOG", "info"));
    genesis_free(block_of(32 * MIB, STREAM(0)), 0, STREAM(0));
    CHECK_OK(genesis_cache_empty(0));
    if (!strategy_is("Naive")) {
        CHECK(second.messages > 1 && second.level == GENESIS_LOG_LEVEL_INFO);
        CHECK(strstr(second.text, "released") != NULL);
    }

    /* With the log off, the last error still is what it is. */
    const int messages = second.messages;
    CHECK_OK(genesis_option_set("GENESIS_LOG", "off"));
    CHECK_REPORTS(GENESIS_STATUS_FOREIGN_POINTER, provoke());
    CHECK(second.messages == messages);
    CHECK_OK(genesis_log_callback_set(NULL, NULL));
    provoke();
    CHECK(second.messages == messages);
    return 0;
}
