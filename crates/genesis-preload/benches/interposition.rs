//! What it costs to be in between: `cargo bench -p genesis-preload`.
//!
//! Nanoseconds of a cudaMalloc and the cudaFree of what it gave, from the cache, under the preload
//! library; beside it Genesis's own two functions called directly, and simcuda's two without the
//! library. What is between the first two is the cost of interposing: the current context asked
//! for, the block looked up, its place among those that wait, its part of the wait for the device.
//!
//! simcuda computes nothing in its calls, so its pair is what CUDA's would be if the driver cost
//! nothing; a real cudaMalloc takes microseconds and more.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;

use support::{beside, command, compile};

fn main() {
    let program = compile("bench", "pairs");
    println!("one thread, nanoseconds of a pair: median of 201 rounds of 4,096 pairs");
    println!(
        "{:>10} {:>10} {:>10} {:>12} {:>10}",
        "bytes", "simcuda", "genesis", "preloaded", "between"
    );
    for bytes in ["1024", "65536", "2097152"] {
        let simcuda = pair(&program, &[bytes], false);
        let genesis = pair(&program, &[bytes, "genesis"], false);
        let preloaded = pair(&program, &[bytes], true);
        let between = preloaded - genesis;
        println!("{bytes:>10} {simcuda:>10.1} {genesis:>10.1} {preloaded:>12.1} {between:>10.1}");
    }
}

/// The time of a pair, in nanoseconds, as the program says it.
fn pair(program: &Path, arguments: &[&str], is_preloaded: bool) -> f64 {
    let mut command = command(program);
    command.args(arguments).env("GENESIS_LIBRARY", beside("libgenesis.so"));
    if !is_preloaded {
        command.env_remove("LD_PRELOAD");
    }
    let output = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().unwrap_or_else(|_| {
        panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    })
}
