//! The probes on the simulated driver, whose answers are known: the measured costs must be its
//! price list to the nanosecond, and every fact must be as Genesis expects it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use simgpu::{Call, CostTable};

/// The folder with the simulated driver under the driver's name.
fn driver_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let built = std::env::current_exe().unwrap().with_file_name("libsimcuda.so");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu-probe-driver");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(built, folder.join("libcuda.so.1")).unwrap();
        folder
    })
}

/// The result that a part of the program prints, on a driver with these settings.
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
    let call_of = |price: &Value| {
        let name = price["call"].as_str().unwrap().to_owned();
        Call::ALL.iter().find(|call| format!("{call:?}") == name).copied()
    };
    // Questions about handles may have no price, and no name, in the simulation.
    for (price, call) in prices.iter().filter_map(|price| Some((price, call_of(price)?))) {
        let expected = table.get(call);
        for (bytes, nanoseconds) in points(&price["points"]) {
            assert_eq!(nanoseconds, expected.price_ns(bytes, 1), "{call:?} of {bytes} bytes");
        }
        for (bytes, nanoseconds) in points(&price["further"]) {
            let two_ns = expected.price_ns(2 * bytes, 2);
            let added_ns = two_ns - expected.price_ns(bytes, 1);
            assert_eq!(nanoseconds, added_ns, "{call:?} with further mappings of {bytes} bytes");
        }
    }
    let measured: Vec<Call> = prices.iter().filter_map(call_of).collect();
    for call in Call::ALL.iter().filter(|call| table.get(**call).base_ns() > 0) {
        assert!(measured.contains(call), "{call:?} was not measured");
    }
}

/// Every experiment ends on the simulated driver, with a verdict that is no defect.
#[test]
fn assumptions_have_verdicts() {
    let counts = ["--rounds=600", "--mappings=500", "--launches=300", "--streams=50"];
    for (name, verdicts) in [
        ("handle_reuse_elastic", ["holds", "not_tried"]),
        ("handle_reuse_caching", ["holds", "not_tried"]),
        ("handle_reuse_round", ["holds", "not_tried"]),
        ("aliases_plain", ["not_tried"; 2]),
        ("aliases_read_only", ["not_tried"; 2]),
        ("aliases_atomic", ["not_tried"; 2]),
        ("aliases_copy_engine", ["not_tried"; 2]),
        ("aliases_graph", ["not_tried"; 2]),
        ("aliases_dependent_launch", ["not_tried"; 2]),
        ("waits_for_stream", ["holds"; 2]),
        ("waits_for_graph", ["holds"; 2]),
        ("waits_for_green_context", ["holds", "not_tried"]),
        ("waits_for_context", ["holds", "not_tried"]),
        ("waits_for_second_device", ["holds"; 2]),
        ("mappings_under_load", ["holds"; 2]),
        ("queue_of_waiting_work", ["holds", "does_not_hold"]),
        ("queue_and_other_threads", ["holds", "not_tried"]),
        ("captures_of_another_thread", ["holds"; 2]),
        ("neighbours_give_back", ["holds"; 2]),
        ("memory_for_communication", ["holds"; 2]),
    ] {
        let is_shared = name.starts_with("neighbours");
        let common = driver_folder().join(format!("common-{}", std::process::id()));
        let store = if name.starts_with("handle_reuse") { "bytes" } else { "addresses" };
        let settings = [
            ("SIMCUDA_PROGRESS", if is_shared { "automatic" } else { "manual" }),
            ("SIMCUDA_STORE", store),
            ("SIMCUDA_MEMORY", "2GiB"),
            ("SIMCUDA_DEVICES", "2"),
            ("SIMCUDA_COMMON", if is_shared { common.to_str().unwrap() } else { "" }),
        ];
        let arguments = [&["assumption", name][..], &counts].concat();
        let finding = part(&arguments, &settings);
        let verdict = finding["verdict"].as_str().unwrap();
        assert!(verdicts.contains(&verdict), "{finding}");
        assert_eq!(finding["is_defect"], false, "{finding}");
        assert_ne!(finding["seen"], "", "{finding}");
    }
}

#[test]
fn mappings_stop_at_the_first_refusal() {
    let settings = [("SIMCUDA_FAULTS", "cuMemSetAccess:40:2"), ("SIMCUDA_STORE", "addresses")];
    let finding = part(&["assumption", "mappings_under_load", "--mappings=500"], &settings);
    assert_eq!(finding["verdict"], "does_not_hold", "{finding}");
    let seen = finding["seen"].as_str().unwrap();
    assert!(seen.contains("38 of 500 mappings, then cuMemSetAccess answered 2"), "{seen}");
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
        "managed_beyond_the_device",
        "managed_makes_room",
        "managed_prefetch_and_faults",
        "managed_prefetch_in_capture",
        "aliases_in_stream_order",
        "remapped_address",
        "release_before_unmap",
        "part_of_a_mapping",
        "event_outlives_its_stream",
        "wait_outlives_its_event",
        "virtual_memory_in_global_capture",
        "allocation_in_global_capture",
        "relaxed_calls_in_global_capture",
        "giving_back_in_global_capture",
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
    for (strategy, sleeps) in [("Caching", false), ("Elastic", true)] {
        let trial = part(&["heap", strategy, "--seconds", "1"], &settings);
        assert!(trial["checked_blocks"].as_u64().unwrap() > 0, "{trial}");
        assert_eq!(trial["checked_blocks"], trial["allocations"], "{trial}");
        assert_eq!((&trial["wrong_blocks"], &trial["missing_bytes"]), (&0.into(), &0.into()));
        assert_eq!(trial["sleep"]["bytes"].as_u64().is_some_and(|bytes| bytes > 0), sleeps);
    }
}
