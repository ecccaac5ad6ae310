//! The probes on the simulated driver, whose answers are known: its price list must be found
//! again to the nanosecond, and every fact must be as Genesis expects it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use simgpu::{Call, CostTable};

/// The folder with the simulated driver under the driver's name.
fn driver_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let built = build_driver();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu-probe-driver");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(built, folder.join("libcuda.so.1")).unwrap();
        folder
    })
}

/// Builds simcuda where this test was built, in the same profile.
fn build_driver() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_gpu-probe"));
    let profile = program.parent().unwrap();
    let is_release = profile.file_name().is_some_and(|name| name == "release");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "simcuda", "--target-dir"]);
    cargo.arg(profile.parent().unwrap()).args(is_release.then_some("--release"));
    assert!(cargo.status().unwrap().success(), "simcuda is not built");
    profile.join("libsimcuda.so")
}

/// What a part of the program prints, on a driver with these settings.
fn part(arguments: &[&str], settings: &[(&str, &str)]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-probe"))
        .args(arguments)
        .env("LD_LIBRARY_PATH", driver_folder())
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn the_price_list_is_found_again() {
    let costs = part(&["costs", "--seconds", "60"], &[("SIMCUDA_RACES", "off")]);
    assert_eq!(costs["left_out"], Value::Array(Vec::new()));
    let table = CostTable::default();
    let prices = costs["prices"].as_array().unwrap();
    for price in prices {
        let name = price["call"].as_str().unwrap();
        let call = Call::ALL.iter().find(|call| format!("{call:?}") == name);
        let expected = table.get(*call.unwrap_or_else(|| panic!("{name} is no call of simgpu")));
        for (bytes, nanoseconds) in points(&price["points"]) {
            assert_eq!(nanoseconds, expected.price_ns(bytes, 1), "{name} of {bytes} bytes");
        }
        for (bytes, nanoseconds) in points(&price["further"]) {
            let two_ns = expected.price_ns(2 * bytes, 2);
            let added_ns = two_ns - expected.price_ns(bytes, 1);
            assert_eq!(nanoseconds, added_ns, "{name} with further mappings of {bytes} bytes");
        }
    }
    let has_a_price = |call: &&Call| table.get(**call).base_ns() > 0;
    assert_eq!(prices.len(), Call::ALL.iter().filter(has_a_price).count());
}

/// Sizes in bytes with prices in nanoseconds.
fn points(of: &Value) -> Vec<(u64, u64)> {
    let all = of.as_array().unwrap().iter();
    all.map(|point| (point[0].as_u64().unwrap(), point[1].as_u64().unwrap())).collect()
}

#[test]
fn facts_are_as_expected() {
    let settings =
        [("SIMCUDA_PROGRESS", "manual"), ("SIMCUDA_STORE", "bytes"), ("SIMCUDA_MEMORY", "2GiB")];
    for name in [
        "allocation_rounding",
        "free_waits",
        "aliases_in_stream_order",
        "remapped_address",
        "release_before_unmap",
        "part_of_a_mapping",
        "event_outlives_its_stream",
        "wait_outlives_its_event",
        "virtual_memory_in_global_capture",
        "allocation_in_global_capture",
        "relaxed_calls_in_global_capture",
    ] {
        let fact = part(&["fact", name], &settings);
        assert_eq!(fact["verdict"], "as_expected", "{fact}");
    }
}

#[test]
fn a_call_that_fails_is_not_an_answer() {
    let settings = [("SIMCUDA_STORE", "bytes"), ("SIMCUDA_FAULTS", "cuMemCreate:1:2")];
    let fact = part(&["fact", "release_before_unmap"], &settings);
    assert_eq!(fact["verdict"], "not_observed", "{fact}");
    assert!(fact["observed"].as_str().unwrap().contains("cuMemCreate answered 2"), "{fact}");
}

#[test]
fn a_strategy_keeps_its_bytes() {
    let settings =
        [("SIMCUDA_STORE", "bytes"), ("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_ON_VIOLATION", "abort")];
    let trial = part(&["heap", "Caching", "--seconds", "1"], &settings);
    assert!(trial["checked_blocks"].as_u64().unwrap() > 0, "{trial}");
    assert_eq!(trial["checked_blocks"], trial["allocations"], "{trial}");
    assert_eq!((&trial["wrong_blocks"], &trial["missing_bytes"]), (&0.into(), &0.into()));
}
