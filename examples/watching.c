/* The fragmentation watch and forecasts, in C: a program that leaks a little in each step. */
#include <genesis.h>
#include <stdio.h>
#include <stdlib.h>

static void compacted(void *user_data, int device, const genesis_compaction *done)
{
    (void)user_data;
    printf("device %d: %llu bytes returned\n", device, (unsigned long long)done->released_bytes);
}

static void warned(void *user_data, int device, const genesis_forecast *forecast)
{
    (void)device;
    *(double *)user_data = forecast->steps_left;
}

int main(void)
{
    double steps_left = 0;
    genesis_option_set("GENESIS_COMPACT_ABOVE", "0.3");
    genesis_compaction_callback_set(compacted, NULL);
    genesis_forecast_callback_set(warned, &steps_left);
    for (int step = 0; step < 200; ++step) {
        void *scratch = genesis_malloc(64 << 20, 0, NULL);
        if (genesis_malloc(1 << 20, 0, NULL) == NULL) { /* never freed */
            fprintf(stderr, "%s\n", genesis_last_error_message_get());
            return 1;
        }
        genesis_free(scratch, 0, NULL);
        genesis_trace_iteration(step);
    }
    genesis_forecast forecast = {.struct_size = sizeof forecast};
    genesis_forecast_get(0, &forecast);
    printf("warned: %s; a leak: %s\n", steps_left > 0 ? "yes" : "no",
           forecast.is_leak ? "yes" : "no");
    return 0;
}
