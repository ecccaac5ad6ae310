/* Forecasts: a leak is seen and told of once, well before memory runs out; a steady program is not.
 */
#include "check.h"

#include <math.h>

static int calls;
static genesis_forecast told;

static void note(void *user_data, int device, const genesis_forecast *forecast)
{
    CHECK(user_data == &calls && device == 0);
    calls++;
    told = *forecast;
    /* It may call the library. */
    CHECK(stats_of(0).allocated_bytes.current > 0);
}

static genesis_forecast forecast_of(int device)
{
    genesis_forecast forecast;
    memset(&forecast, 0x77, sizeof forecast);
    forecast.struct_size = sizeof forecast;
    CHECK_OK(genesis_forecast_get(device, &forecast));
    return forecast;
}

static void steady(void)
{
    for (unsigned step = 0; step < 40; step++) {
        genesis_free(block_of(20 * MIB, STREAM(0)), 0, STREAM(0));
        CHECK_OK(genesis_trace_iteration(step));
    }
    const genesis_forecast forecast = forecast_of(0);
    CHECK(forecast.steps == 40 && forecast.peak_bytes >= 20 * MIB);
    CHECK(forecast.confidence == 0.0 && forecast.bytes_per_step == 0.0 && !forecast.is_leak);
    CHECK(isinf(forecast.steps_left) && isinf(forecast.fewest_steps_left));
    CHECK(forecast.possible_bytes == 0 && calls == 0);
}

static void leak(void)
{
    CHECK_OK(genesis_memory_limit_set(0, 300 * MIB));
    unsigned step = 0;
    while (calls == 0 && step < 100) {
        block_of(2 * MIB, STREAM(0));
        CHECK_OK(genesis_trace_iteration(step++));
    }
    /* 300 MiB last for 150 steps. */
    CHECK(calls == 1 && step < 60);
    CHECK(told.is_leak && told.confidence > 0.999);
    CHECK(told.bytes_per_step > (double)MIB / 2 && told.bytes_per_step < 2.01 * (double)MIB);
    CHECK(told.possible_bytes > 250 * MIB && told.possible_bytes <= 300 * MIB);
    CHECK(told.steps_left > 50.0 && told.steps_left < 600.0);
    CHECK(told.fewest_steps_left <= told.steps_left);
    CHECK(forecast_of(0).steps_left == told.steps_left);
    /* It is told once, and again when few steps are left. */
    for (int more = 0; more < 5; more++) {
        block_of(2 * MIB, STREAM(0));
        CHECK_OK(genesis_trace_iteration(step++));
    }
    CHECK(calls == 1);
    while (calls == 1 && step < 140) {
        block_of(2 * MIB, STREAM(0));
        CHECK_OK(genesis_trace_iteration(step++));
    }
    CHECK(calls == 2 && fabs(told.bytes_per_step - 2 * (double)MIB) < 4096.0);
    CHECK(fabs(told.steps_left - (150.0 - step)) < 20.0);
}

static void refused(void)
{
    genesis_forecast forecast;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_forecast_get(0, NULL));
    forecast.struct_size = 8;
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT, genesis_forecast_get(0, &forecast));
    forecast.struct_size = sizeof forecast;
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_forecast_get(-1, &forecast));
    CHECK_FAILS(GENESIS_STATUS_INVALID_DEVICE, genesis_forecast_get(99, &forecast));
    CHECK_FAILS(GENESIS_STATUS_INVALID_ARGUMENT,
                genesis_option_set("GENESIS_FORECAST_STEPS", "few"));
}

int main(void)
{
    /* Steps before the first allocation are of no device. */
    CHECK_OK(genesis_trace_iteration(0));
    CHECK_OK(genesis_option_set("GENESIS_LOG", "off"));
    CHECK_OK(genesis_forecast_callback_set(note, &calls));
    block_of(MIB, STREAM(0));
    CHECK(forecast_of(0).steps == 0);
    steady();
    leak();
    refused();
    /* Without a callback, and without warnings. */
    CHECK_OK(genesis_forecast_callback_set(NULL, NULL));
    CHECK_OK(genesis_trace_iteration(0));
    CHECK(calls == 2);
    return 0;
}
