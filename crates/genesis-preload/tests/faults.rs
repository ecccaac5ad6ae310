//! The driver fails at each call in turn: the program gets an error or memory, and at its end
//! nothing is lost.

mod support;
#[path = "../../../tests/support/tier.rs"]
mod tier;

use std::fs;
use std::path::Path;

use support::{command, compile};

/// What a failed call answers; nothing else answers it.
const CODE: i32 = 999;

/// What is called by this library and by Genesis under it.
const CALLS: [&str; 24] = [
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxSynchronize",
    "cuDeviceGetCount",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuEventCreate",
    "cuEventQuery",
    "cuEventRecord",
    "cuMemAddressReserve",
    "cuMemAlloc",
    "cuMemCreate",
    "cuMemGetInfo",
    "cuMemMap",
    "cuMemSetAccess",
    "cuStreamCreate",
    "cuStreamDestroy",
    "cuStreamGetCtx",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
    "cudaFree",
    "cudaMalloc",
];

/// The call that plain segments need, and those that Elastic makes instead.
const OF_SEGMENTS: &str = "cuMemAlloc";
const OF_ELASTIC: [&str; 4] = ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"];
/// Made when a fence waits for a device that this library has not seen.
const OF_SEVERAL_DEVICES: &str = "cuDevicePrimaryCtxRelease_v2";
/// Made when memory has come to cudaMalloc's stream behind an event.
const OF_OUR_STREAM: &str = "cuStreamSynchronize";

/// At which of its times a call fails first, and how often.
const TIMES: [(u32, u32); 6] = [(1, 1), (1, 40), (3, 2), (2, 1), (9, 3), (40, 5)];

/// Fails each call, at its first time and at later ones, once and for a while. The fault at the
/// first time must strike, unless the call is `never_made`.
fn survives(test: &str, settings: &[(&str, &str)], never_made: &[&str]) {
    let program = compile(test, "faults");
    let log = program.with_extension("log");
    for call in CALLS {
        for &(nth, times) in &TIMES[..tier::some_or_all(3, TIMES.len())] {
            let fault = format!("{call}:{nth}:{CODE}:{times}");
            let output = command(&program)
                .env("SIMCUDA_FAULTS", &fault)
                // Work stays pending, so that streams and the host wait for each other.
                .env("SIMCUDA_PROGRESS", "manual")
                .env("SIMCUDA_LOG", &log)
                .env("GENESIS_LOG", "off")
                .envs(settings.iter().copied())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{fault}: {}\n{said}", output.status);
            if nth == 1 {
                let has_struck = has_failed_call(&log);
                let is_made = !never_made.contains(&call);
                assert_eq!(has_struck, is_made, "{fault}: has struck, and should have");
            }
        }
    }
}

/// Returns true if simcuda's log has a call that ended with [`CODE`].
fn has_failed_call(log: &Path) -> bool {
    let text = fs::read_to_string(log).unwrap();
    assert!(text.lines().count() > 100, "simcuda was called");
    text.lines().any(|line| line.ends_with(&format!(" = {CODE}")))
}

#[test]
fn under_elastic() {
    survives("elastic", &[], &[OF_SEGMENTS, OF_SEVERAL_DEVICES]);
}

#[test]
fn on_one_of_two_devices() {
    survives("devices", &[("SIMCUDA_DEVICES", "2")], &[OF_SEGMENTS]);
}

#[test]
fn under_caching_on_a_small_device() {
    let settings = [("GENESIS_POOL_TYPE", "Caching"), ("SIMCUDA_MEMORY", "512MiB")];
    let never_made = [&OF_ELASTIC[..], &[OF_SEVERAL_DEVICES, OF_OUR_STREAM]].concat();
    survives("caching", &settings, &never_made);
}
