//! The driver fails at each call in turn: the program gets an error or memory, and at its end
//! nothing is lost.

mod support;

use support::{command, compile};

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

/// Fails each call, at its first time and at later ones, once and for a while.
fn survives(test: &str, settings: &[(&str, &str)]) {
    let program = compile(test, "faults");
    for call in CALLS {
        for (nth, times) in [(1, 1), (1, 40), (2, 1), (3, 2), (9, 3), (40, 5)] {
            let fault = format!("{call}:{nth}:999:{times}");
            let output = command(&program)
                .env("SIMCUDA_FAULTS", &fault)
                .env("GENESIS_LOG", "off")
                .envs(settings.iter().copied())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{fault}: {}\n{said}", output.status);
        }
    }
}

#[test]
fn under_elastic() {
    survives("elastic", &[]);
}

#[test]
fn on_one_of_two_devices() {
    survives("devices", &[("SIMCUDA_DEVICES", "2")]);
}

#[test]
fn under_caching_on_a_small_device() {
    survives("caching", &[("GENESIS_POOL_TYPE", "Caching"), ("SIMCUDA_MEMORY", "512MiB")]);
}
