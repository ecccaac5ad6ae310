//! The cost of interposing: `cargo bench -p genesis-preload`.
//!
//! Nanoseconds of a cudaMalloc from the cache and the cudaFree of its block, under the preload
//! library; next to them the times of Genesis's own two functions called directly, and of simcuda's
//! two without the library. The difference between the first two is the cost of interposing: asking
//! for the current context, remembering the block, putting it aside, its part of the fence.
//!
//! simcuda computes nothing in its calls, so its pair is what CUDA's would be if the driver cost
//! nothing; a real cudaMalloc takes microseconds and more.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;

use support::{beside, command, compile};

/// So many processes: what else the machine does only adds to a time.
const PROCESSES: usize = 9;

fn main() {
    let program = compile("bench", "pairs");
    println!(
        "one thread, nanoseconds of a pair: median of 201 rounds of 4,096 pairs, the least of \
         {PROCESSES} processes"
    );
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

/// The time of a pair, in nanoseconds.
fn pair(program: &Path, arguments: &[&str], is_preloaded: bool) -> f64 {
    let times = (0..PROCESSES).map(|_| pair_once(program, arguments, is_preloaded));
    times.fold(f64::INFINITY, f64::min)
}

/// The time in one process, as the program prints it.
fn pair_once(program: &Path, arguments: &[&str], is_preloaded: bool) -> f64 {
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
