//! What each part of Elastic's policy is worth: the recorded programs without one part at a time.
//!
//! `cargo bench --features ablations --bench ablations` prints the tables of docs/benchmarks/elastic.md.
//! Twelve passes, in virtual time, so the figures are the same everywhere. The first table is of the
//! programs as they were recorded, the second of the same with other sizes, both at an H100's
//! prices. The third is at prices for which Elastic chooses other extents, with and without.
//!
//! With the name of a folder of other traces (`benches/synthetic`) it measures those instead.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;

use genesis::config::ElasticPolicy;
use genesis::heap::ablation::{Part, leave_out};
use genesis_replay::program::Program;
use simgpu::Prices;
use support::host_memory::Counting;
use support::replay::{
    DEVICE_BYTES, Outcome, RECORDED, mean_held, measure, programs_in, recorded,
    recorded_with_other_sizes,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One program is so small that a granule here and there weighs much: it is in no mean.
const SMALL_PROGRAM: &str = RECORDED[0];
/// How often the sizes of each program are drawn anew.
const DRAWS: u64 = 4;
/// A device with little room, in hundredths of the live peak.
const LITTLE_ROOM: u64 = 101;
/// Much driver time for a pass, in milliseconds.
const MUCH_MS: f64 = 50.0;

/// The programs of the means.
fn measured() -> impl Iterator<Item = &'static str> {
    RECORDED.into_iter().filter(|&name| name != SMALL_PROGRAM)
}

fn main() {
    // The one shows at other prices, the other with several threads (benches/lanes.rs).
    let is_shown = |part: &Part| ![Part::KnownPrices, Part::Apart].contains(part);
    let parts: Vec<Option<Part>> =
        [None].into_iter().chain(Part::ALL.into_iter().filter(is_shown).map(Some)).collect();
    // cargo adds --bench.
    if let Some(folder) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) {
        return print_others(&parts, Path::new(&folder));
    }

    let programs: Vec<Program> = measured().chain([SMALL_PROGRAM]).map(recorded).collect();
    print_head("without");
    for &part in &parts {
        leave_out(part);
        print_row(name_of(part), &programs, Prices::H100);
    }

    println!("\n| without | held | first pass, ms | a pass, ms | fail on {LITTLE_ROOM} % |");
    println!("|---|---:|---:|---:|---:|");
    let draws = measured().flat_map(|name| (1..=DRAWS).map(move |draw| (name, draw)));
    let varied: Vec<Program> =
        draws.map(|(name, draw)| recorded_with_other_sizes(name, draw)).collect();
    for &part in &parts {
        leave_out(part);
        print_varied(name_of(part), &varied);
    }

    println!();
    print_head("prices");
    for list in [Prices::B300, Prices::A100] {
        leave_out(None);
        print_row(list.name(), &programs, list);
        let part = Some(Part::KnownPrices);
        leave_out(part);
        print_row(&format!("{}, {}", list.name(), name_of(part)), &programs, list);
    }
    println!(
        "\nheld: geometric mean of all but {SMALL_PROGRAM}; times: sums over the programs, of which \
         the second table has none for {SMALL_PROGRAM}; the rest: held, each"
    );
}

fn print_head(rows: &str) {
    let names = measured().chain([SMALL_PROGRAM]);
    let names: Vec<&str> = names.map(|name| name.split('_').next().unwrap_or(name)).collect();
    println!("| {rows} | held | first pass, ms | a pass, ms | {} |", names.join(" | "));
    println!("|---|---:|---:|---:|{}", "---:|".repeat(names.len()));
}

fn print_row(name: &str, programs: &[Program], list: Prices) {
    let outcomes: Vec<Outcome> =
        programs.iter().map(|program| measure_ample(program, list)).collect();
    let held = mean_held(&outcomes[..RECORDED.len() - 1]);
    let (cold_ms, warm_ms) = sums_ms(&outcomes);
    let each: Vec<String> = outcomes.iter().map(|outcome| format!("{:.3}", outcome.held)).collect();
    let each = each.join(" | ");
    println!("| {name} | {held:.3} | {cold_ms:.0} | {warm_ms:.0} | {each} |");
}

/// The table of the programs in a folder: also how many take much time in each pass.
fn print_others(parts: &[Option<Part>], folder: &Path) {
    let programs: Vec<Program> =
        programs_in(folder).into_iter().map(|(_, program)| program).collect();
    println!("| without | held | first pass, ms | a pass, ms | above {MUCH_MS} ms a pass |");
    println!("|---|---:|---:|---:|---:|");
    for &part in parts {
        leave_out(part);
        let outcomes: Vec<Outcome> =
            programs.iter().map(|program| measure_ample(program, Prices::H100)).collect();
        let (held, (cold_ms, warm_ms)) = (mean_held(&outcomes), sums_ms(&outcomes));
        let slow = outcomes.iter().filter(|outcome| outcome.warm_ms > MUCH_MS).count();
        let (name, count) = (name_of(part), outcomes.len());
        println!("| {name} | {held:.3} | {cold_ms:.0} | {warm_ms:.0} | {slow} of {count} |");
    }
}

fn print_varied(name: &str, programs: &[Program]) {
    let outcomes: Vec<Outcome> =
        programs.iter().map(|program| measure_ample(program, Prices::H100)).collect();
    let held = mean_held(&outcomes);
    let (cold_ms, warm_ms) = sums_ms(&outcomes);
    let (cold_ms, warm_ms) = (cold_ms / DRAWS as f64, warm_ms / DRAWS as f64);
    let failed = programs.iter().filter(|program| !completes_with_little_room(program)).count();
    let count = programs.len();
    println!("| {name} | {held:.3} | {cold_ms:.0} | {warm_ms:.0} | {failed} of {count} |");
}

fn sums_ms(outcomes: &[Outcome]) -> (f64, f64) {
    let sum = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum();
    (sum(|outcome| outcome.cold_ms), sum(|outcome| outcome.warm_ms))
}

/// Twelve passes with ample room.
fn measure_ample(program: &Program, list: Prices) -> Outcome {
    measure(program, ElasticPolicy::Balanced, list, DEVICE_BYTES).expect("there is ample room")
}

fn completes_with_little_room(program: &Program) -> bool {
    let device_bytes = program.live_peak_bytes / 100 * LITTLE_ROOM;
    measure(program, ElasticPolicy::Balanced, Prices::H100, device_bytes).is_some()
}

fn name_of(part: Option<Part>) -> &'static str {
    let Some(part) = part else { return "nothing" };
    match part {
        Part::Wilderness => "the wilderness last",
        Part::ReturnHome => "the return home at troughs",
        Part::Recall => "views that come back",
        Part::OldestFirst => "the oldest window first",
        Part::Gather => "gathering before growing",
        Part::IdleStreams => "idle streams without an event",
        Part::FirstCycle => "moving less in the first cycle",
        Part::Restless => "more for restless programs",
        Part::Packing => "packing without cycles",
        Part::PassOver => "passing over views in use",
        Part::HighestForSmall => "the highest extents for small blocks",
        Part::CoarseLoading => "coarse extents while loading",
        Part::Exact => "exact growth of young programs",
        Part::Scarcity => "finer extents once memory is scarce",
        Part::Edges => "blocks over edges",
        Part::KnownPrices => "an H100's sizes",
        Part::Apart => "strangers apart",
    }
}
