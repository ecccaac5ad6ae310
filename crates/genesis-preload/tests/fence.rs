//! Freed memory is reused only when nothing uses it any more, under simgpu's race detector. Without
//! the fence the detector finds the races that the fence prevents.

mod support;

use std::process::Command;

use support::{command, compile, run};

/// The strategies that reuse blocks.
const STRATEGIES: [&str; 4] = ["Elastic", "Caching", "Round", "Exact"];

fn case(test: &str, name: &str) -> Command {
    let mut command = command(&compile(test, "fence"));
    command.arg(name).env("SIMCUDA_PROGRESS", "manual");
    command
}

#[track_caller]
fn is_clean(name: &str, strategies: &[&str]) {
    for strategy in strategies {
        assert_eq!(run(case(name, name).env("GENESIS_POOL_TYPE", strategy)), "", "{strategy}");
    }
}

#[test]
fn memory_freed_in_a_streams_shadow_is_not_used_on_another() {
    is_clean("shadow", &STRATEGIES);
}

#[test]
fn without_the_fence_it_is_and_the_detector_says_so() {
    let output =
        case("without_fence", "shadow").env("GENESIS_PRELOAD_FENCE", "off").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("race on "), "{said}");
}

#[test]
fn memory_that_is_short_is_waited_for() {
    is_clean("short_of_memory", &STRATEGIES);
}

#[test]
fn one_wait_is_for_many_blocks() {
    is_clean("many", &["Elastic", "Caching"]);
}

#[test]
fn the_bytes_put_aside_are_few() {
    is_clean("bytes", &["Elastic"]);
}

#[test]
fn a_wait_of_the_programs_is_as_good() {
    is_clean("own_wait", &STRATEGIES);
}

#[test]
fn a_capture_is_not_disturbed() {
    for strategy in STRATEGIES {
        let said = run(case("capture", "capture").env("GENESIS_POOL_TYPE", strategy));
        // A capture's requests are passed on, and simcuda has no memory nodes.
        assert_eq!(said, "simcuda: cudaMallocAsync in a capture is not implemented\n");
    }
}

#[test]
fn memory_freed_in_stream_order_is_idle_when_cudamalloc_gives_it() {
    is_clean("stream_order", &STRATEGIES);
}

#[test]
fn threads_that_do_everything_at_once() {
    for strategy in STRATEGIES {
        for (memory, progress) in
            [("80GiB", "automatic"), ("6GiB", "automatic"), ("6GiB", "manual")]
        {
            let mut command = command(&compile("crowd", "crowd"));
            command.env("GENESIS_POOL_TYPE", strategy).env("SIMCUDA_MEMORY", memory);
            command.env("SIMCUDA_PROGRESS", progress);
            assert_eq!(run(&mut command), "", "{strategy}, {memory}, {progress}");
        }
    }
}

/// While memory is short: no request is refused for what captures of other threads hold back, nor for what
/// another thread is giving back, and no capture is invalidated, also if streams only go on where they
/// are waited for. Several processes at once, so threads are stopped anywhere.
#[test]
fn threads_that_capture() {
    const ROUNDS: &str = "4000";
    let program = compile("crowd_capturing", "crowd");
    let play = |strategy: &str, progress: &str| {
        let mut command = command(&program);
        command.args([ROUNDS, "and capture"]).env("GENESIS_POOL_TYPE", strategy);
        command.env("SIMCUDA_MEMORY", "3GiB").env("SIMCUDA_PROGRESS", progress);
        assert_eq!(run(&mut command), "", "{strategy}, {progress}");
    };
    for strategy in STRATEGIES {
        std::thread::scope(|scope| {
            for progress in ["automatic", "manual"].repeat(3) {
                scope.spawn(move || play(strategy, progress));
            }
        });
    }
}

/// What `cudaMalloc` gives is filled before any stream can write to it.
#[test]
fn threads_that_are_debugged() {
    const ROUNDS: &str = "20";
    let mut command = command(&compile("crowd_debugged", "crowd"));
    command.arg(ROUNDS).env("GENESIS_DEBUG", "all").env("SIMCUDA_STORE", "bytes");
    assert_eq!(run(command.env("SIMCUDA_MEMORY", "6GiB")), "");
}
