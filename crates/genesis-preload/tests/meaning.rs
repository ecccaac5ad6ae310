//! Calls mean the same as without the preload library: errors, edges, foreign pointers, devices.

mod support;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use support::{command, compile, compile_with, run};

fn case(name: &str) -> Command {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| compile("all", "meaning"));
    let mut command = command(&PROGRAM);
    command.arg(name);
    command
}

/// A case that needs functions which simcuda does not have.
fn beyond(name: &str) -> Command {
    let shared = ["-shared", "-fPIC"].map(OsStr::new);
    let functions = compile_with(name, "beyond", &shared);
    let mut command = command(&compile_with(name, "meaning", &[functions.as_os_str()]));
    command.arg(name);
    command
}

#[track_caller]
fn holds(name: &str) {
    for strategy in ["Elastic", "Caching", "Naive"] {
        assert_eq!(run(case(name).env("GENESIS_POOL_TYPE", strategy)), "", "{strategy}");
    }
}

#[test]
fn nothing_null_twice_and_inside() {
    holds("edges");
}

#[test]
fn each_of_many_blocks_is_freed_once() {
    // Wrong frees are found by searching all blocks, so it takes long.
    assert_eq!(run(case("many").env("GENESIS_POOL_TYPE", "Caching")), "");
}

#[test]
#[ignore = "nightly"]
fn each_of_many_blocks_is_freed_once_under_each_strategy() {
    holds("many");
}

#[test]
fn of_threads_that_free_a_block_one_succeeds() {
    holds("twice_at_once");
}

#[test]
fn the_last_error_is_told() {
    holds("last_error");
}

#[test]
fn rows_have_cudas_pitch() {
    holds("pitched");
}

#[test]
fn what_is_cached_or_waits_is_free() {
    holds("memory_info");
}

#[test]
fn foreign_pointers_are_forwarded() {
    holds("foreign");
}

#[test]
fn stream_order_and_pools() {
    for strategy in ["Elastic", "Caching", "Naive"] {
        let said = run(case("stream_order").env("GENESIS_POOL_TYPE", strategy));
        // Requests from other memory pools are passed on, and simcuda has none.
        assert_eq!(said, "simcuda: cudaMallocFromPoolAsync is not implemented\n", "{strategy}");
    }
}

#[test]
fn each_device_has_its_own() {
    assert_eq!(run(case("devices").env("SIMCUDA_DEVICES", "2")), "");
}

#[test]
fn a_peer_may_use_the_memory() {
    for strategy in ["Elastic", "Caching", "Naive"] {
        let mut command = case("peers");
        command.env("SIMCUDA_DEVICES", "2").env("GENESIS_POOL_TYPE", strategy);
        assert_eq!(run(&mut command), "", "{strategy}");
    }
}

#[test]
fn a_handle_stands_for_a_whole_allocation() {
    // The first block begins where the driver's segment does, and is forwarded; the driver has no
    // such handles of memory that is mapped.
    for (strategy, said) in [("Caching", "0\n801\n"), ("Elastic", "1\n801\n")] {
        let mut command = case("ipc");
        assert_eq!(run(command.env("GENESIS_POOL_TYPE", strategy)), said, "{strategy}");
    }
}

#[test]
fn memory_of_cudas_own_passes() {
    assert_eq!(run(&mut beyond("passed")), "");
}

#[test]
fn a_device_that_is_reset_is_cudas() {
    assert_eq!(run(beyond("reset").env("GENESIS_POOL_TYPE", "Elastic")), "");
}

#[test]
fn addresses_of_a_device_that_was_reset_are_cudas() {
    assert_eq!(run(beyond("addresses_again").env("GENESIS_POOL_TYPE", "Elastic")), "");
}

#[test]
fn a_device_that_is_reset_for_good_is_cudas() {
    holds("reset_for_good");
}

#[test]
fn a_pool_of_the_programs_is_cudas() {
    assert_eq!(run(&mut beyond("pools")), "");
}

#[test]
fn limits_are_kept() {
    let said = run(case("limit").env("GENESIS_MEMORY_LIMIT", "1GiB"));
    assert!(said.contains("requested_bytes=104857600") && said.lines().count() == 1, "{said}");
}

/// Also below what a context takes (HAMi-core's issue 1370), and with CUDA's code for a shortage.
#[test]
fn limits_that_are_set_outside_are_what_the_device_seems_to_have() {
    for limit in ["300", "5000000", "314572800"] {
        let mut case = case("outer_limit");
        case.env("CUDA_DEVICE_MEMORY_LIMIT", limit).env("LIMIT", limit).env("GENESIS_LOG", "off");
        assert_eq!(run(&mut case), "", "{limit}");
    }
}

#[test]
fn what_was_freed_has_not_leaked() {
    let said = run(case("leaks").env("GENESIS_DEBUG", "leaks"));
    assert!(said.contains("1 block") && said.contains("2.00 KiB"), "{said}");
}
