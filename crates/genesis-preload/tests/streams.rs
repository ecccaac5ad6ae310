//! A stream is more than its handle, and captures are not disturbed, under simgpu's race detector.

mod support;

use std::ffi::OsStr;

use support::{command, compile_with, run};

/// The strategies that reuse blocks.
const STRATEGIES: [&str; 4] = ["Elastic", "Caching", "Round", "Exact"];

#[track_caller]
fn is_clean(name: &str) {
    let shared = ["-shared", "-fPIC"].map(OsStr::new);
    let functions = compile_with(&format!("streams_{name}"), "beyond", &shared);
    let program = compile_with(name, "streams", &[functions.as_os_str()]);
    for strategy in STRATEGIES {
        let mut command = command(&program);
        command.arg(name).env("SIMCUDA_PROGRESS", "manual");
        assert_eq!(run(command.env("GENESIS_POOL_TYPE", strategy)), "", "{strategy}");
    }
}

#[test]
fn each_thread_has_a_default_stream() {
    is_clean("per_thread");
}

#[test]
fn a_new_stream_with_an_old_handle_is_another() {
    is_clean("made_and_destroyed");
}

#[test]
fn streams_of_the_programs_own_contexts() {
    is_clean("other_context");
}

#[test]
fn a_capture_begins_after_a_wait_that_is_under_way() {
    is_clean("begin_beside_wait");
}

#[test]
fn a_wait_that_needs_the_capture_is_not_waited_for() {
    is_clean("wait_that_needs_the_capture");
}

#[test]
fn captures_that_fail_end_as_well() {
    is_clean("captures_that_end");
}
