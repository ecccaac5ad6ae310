//! Several devices in one process, under simgpu's race detector.

mod support;

use std::ffi::OsStr;

use support::{command, compile_with, run};

/// A strategy that maps memory for each device, and one for which the driver allocates it.
const STRATEGIES: [&str; 2] = ["Elastic", "Caching"];

#[track_caller]
fn is_clean(name: &str) {
    is_clean_under(name, &STRATEGIES);
}

#[track_caller]
fn is_clean_under(name: &str, strategies: &[&str]) {
    let shared = ["-shared", "-fPIC"].map(OsStr::new);
    let functions = compile_with(&format!("devices_{name}"), "beyond", &shared);
    let program = compile_with(name, "devices", &[functions.as_os_str()]);
    for strategy in strategies {
        let mut command = command(&program);
        command.arg(name).env("SIMCUDA_DEVICES", "2").env("SIMCUDA_PROGRESS", "manual");
        assert_eq!(run(command.env("GENESIS_POOL_TYPE", strategy)), "", "{strategy}");
    }
}

#[test]
fn a_stream_tells_the_device() {
    is_clean("elsewhere");
}

#[test]
fn a_peer_that_reads_is_waited_for() {
    is_clean("peer_reads");
}

#[test]
fn fences_wait_for_peers() {
    is_clean("peer_fences");
}

#[test]
fn memory_is_had_after_a_wait_for_a_peer() {
    is_clean("peer_shortage");
}

#[test]
fn fences_of_devices_serve_each_other() {
    is_clean("in_turns");
}

#[test]
fn blocks_are_freed_from_another_device() {
    is_clean("from_the_other");
}

#[test]
fn default_streams_of_devices_are_different() {
    is_clean("default_streams");
}

#[test]
fn a_reset_concerns_one_device() {
    // The reset of beyond.c loses nothing: memory of the driver's own would still be there.
    is_clean_under("reset", &["Elastic"]);
}
