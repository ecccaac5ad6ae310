//! What each part of Elastic's policy is worth: the recorded programs without one part at a time.
//!
//! `cargo bench --features ablations --bench ablations` prints the tables of docs/elastic.md. Twelve
//! passes on 1 TiB, in virtual time, so the figures are the same everywhere. The first table is at an
//! H100's prices, the second at those for which Elastic chooses other extents, with and without.

#[path = "../tests/support/mod.rs"]
mod support;

use genesis::heap::ablation::{Part, leave_out};
use genesis_replay::program::Program;
use simgpu::Prices;
use support::host_memory::Counting;
use support::replay::{DEVICE_BYTES, Replay, recorded};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The recorded programs; the last is so small that a granule here and there weighs much.
const PROGRAMS: [&str; 8] = [
    "bert_large_var",
    "diffusion_buckets",
    "fsdp_streams",
    "gpt2_train",
    "llama1b_full_var",
    "llama7b_lora_ckpt",
    "opt13_recompute_var",
    "alternating",
];
const WARM_PASSES: usize = 11;

/// One program without one part.
struct Outcome {
    /// Most held / most live, over all passes.
    held: f64,
    /// Driver time of the first pass, and of the others on average, in milliseconds.
    cold_ms: f64,
    warm_ms: f64,
}

fn main() {
    let programs: Vec<Program> = PROGRAMS.iter().map(|name| recorded(name)).collect();
    print_head("without");
    print_row("nothing", &programs, Prices::H100);
    // The one shows at other prices, the other with several threads (benches/lanes.rs).
    let is_shown = |part: &Part| ![Part::KnownPrices, Part::Apart].contains(part);
    for part in Part::ALL.into_iter().filter(is_shown) {
        leave_out(Some(part));
        print_row(name_of(part), &programs, Prices::H100);
    }
    println!();
    print_head("prices");
    for list in [Prices::B300, Prices::A100] {
        leave_out(None);
        print_row(list.name(), &programs, list);
        leave_out(Some(Part::KnownPrices));
        print_row(&format!("{}, {}", list.name(), name_of(Part::KnownPrices)), &programs, list);
    }
    println!("\nheld: geometric mean of all but alternating; times: sums; the rest: held, each");
}

fn print_head(rows: &str) {
    let names = PROGRAMS.map(|name| name.split('_').next().unwrap_or(name)).join(" | ");
    println!("| {rows} | held | first pass, ms | a pass, ms | {names} |");
    println!("|---|---:|---:|---:|{}", "---:|".repeat(PROGRAMS.len()));
}

fn print_row(name: &str, programs: &[Program], list: Prices) {
    let outcomes: Vec<Outcome> = programs.iter().map(|program| measure(program, list)).collect();
    let large = &outcomes[..PROGRAMS.len() - 1];
    let logarithms: f64 = large.iter().map(|outcome| outcome.held.ln()).sum();
    let held = (logarithms / large.len() as f64).exp();
    let cold_ms: f64 = outcomes.iter().map(|outcome| outcome.cold_ms).sum();
    let warm_ms: f64 = outcomes.iter().map(|outcome| outcome.warm_ms).sum();
    let each: Vec<String> = outcomes.iter().map(|outcome| format!("{:.3}", outcome.held)).collect();
    let each = each.join(" | ");
    println!("| {name} | {held:.3} | {cold_ms:.0} | {warm_ms:.0} | {each} |");
}

fn measure(program: &Program, list: Prices) -> Outcome {
    let mut replay = Replay::at_prices(program, list, DEVICE_BYTES);
    let driver_ms = |replay: &Replay<'_>| replay.rig.usage().driver_nanoseconds as f64 / 1e6;
    replay.passes(1);
    let cold_ms = driver_ms(&replay);
    replay.passes(WARM_PASSES);
    let warm_ms = (driver_ms(&replay) - cold_ms) / WARM_PASSES as f64;
    let peak_bytes = replay.rig.statistics().reserved_bytes.peak;
    Outcome { held: peak_bytes as f64 / program.live_peak_bytes as f64, cold_ms, warm_ms }
}

fn name_of(part: Part) -> &'static str {
    match part {
        Part::FirstFit => "first fit: best fit for ever",
        Part::BestFit => "best fit: first fit from the start",
        Part::ReturnHome => "the return home at troughs",
        Part::ReturnAgain => "the return again below troughs",
        Part::Recall => "views that come back",
        Part::OldestFirst => "the oldest window first",
        Part::Gather => "gathering before growing",
        Part::FirstCycle => "whole blocks only in the first cycle",
        Part::PassOver => "passing over views in use",
        Part::HighestForSmall => "the highest extents for small blocks",
        Part::CoarseAtFirst => "coarse extents at first",
        Part::KnownPrices => "an H100's sizes",
        Part::Apart => "strangers apart",
    }
}
