//! The page: what was measured, how, and on which machine; a table for each quantity.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

use genesis_replay::report::Pass;
use genesis_replay::table::{duration, grouped};

use crate::install::{PYTORCH_VERSION, RMM_VERSION};
use crate::results::{Measured, Results, Rounds};
use crate::subjects::YARDSTICK;
use steps::root;

const NOTHING: &str = "–";

/// A cell's text for a measurement, given the yardstick's of the same trace.
type Cell = fn(&Measured, Option<&Measured>) -> Option<String>;

/// A table of the page: heading, explanation and cells.
type Section = (&'static str, &'static str, Cell);

const SECTIONS: [Section; 9] = [
    (
        "Memory reserved over memory live",
        "The peak of physical memory taken from the device over the peak of what the program had \
         live, as requested; first pass, ample memory. 1 is the best possible.",
        |measured, _| measured.single.first().reserved_over_live().map(ratio),
    ),
    (
        "Smallest device",
        "The least memory on which the first pass completes without a failed request, over the \
         live peak; found to 0.1 % by bisection, each probe in its own process. Completing is not \
         strictly monotonic in the size, so near the threshold this is one of several values.",
        |measured, _| {
            let live_bytes = measured.single.first().live_peak_bytes as f64;
            measured.smallest_device_bytes.map(|bytes| ratio(bytes as f64 / live_bytes))
        },
    ),
    (
        "Nanoseconds per call, one thread, warm",
        "Median of the passes after the first, over several processes; in brackets over PyTorch \
         native. This includes the replay's own loop, a nanosecond or two.",
        |measured, yardstick| {
            times(Rounds::warm_ns, &measured.single, yardstick.map(|one| &one.single))
        },
    ),
    (
        "Nanoseconds per call, two threads, warm",
        "Each thread replays the whole program on its own streams, both at once; time per call of \
         one thread, in brackets over PyTorch native.",
        |measured, yardstick| {
            times(Rounds::warm_ns, &measured.double, yardstick.map(|one| &one.double))
        },
    ),
    (
        "Nanoseconds per call, two processes, warm",
        "Two processes at once, each with one thread and its own driver; in brackets over PyTorch \
         native. The time beyond one thread alone comes from the machine, not from the allocator; \
         two threads have the same share of it.",
        |measured, yardstick| {
            times(Rounds::warm_ns, &measured.processes, yardstick.map(|one| &one.processes))
        },
    ),
    (
        "Nanoseconds per call, one thread, cold",
        "The first pass, with nothing cached before it, and without the time that a real driver \
         would have taken; in brackets over PyTorch native.",
        |measured, yardstick| {
            times(Rounds::cold_ns, &measured.single, yardstick.map(|one| &one.single))
        },
    ),
    (
        "Memory reserved over memory live, two threads",
        "Like the first table, with two threads: over twice the program's live peak, though the \
         two threads need not peak at the same time. How they overlap differs from run to run.",
        |measured, _| measured.double.first().reserved_over_live().map(ratio),
    ),
    (
        "Driver calls in a pass",
        "Every call that reaches the driver, including queries of events: first pass, then the \
         last.",
        |measured, _| by_pass(measured, |pass| grouped(pass.driver_calls)),
    ),
    (
        "Driver time in a pass",
        "What a real driver would have taken for these calls by the stand-in's prices, which are \
         published measurements (`crates/simgpu/src/prices.rs`) of the machine named above: first \
         pass, then the last.",
        |measured, _| by_pass(measured, |pass| duration(pass.driver_ns)),
    ),
];

/// The page in Markdown.
pub(crate) fn write(results: &Results) -> String {
    let mut page = format!(
        "# Genesis and its peers\n\n\
         Written by `cargo xtask peers`, which measures everything below in one run: it installs \
         the peers from the package registry, builds Genesis and a driver stand-in, and replays \
         the programs recorded in `traces/`. It needs Python 3 with `venv`, a C++ compiler and \
         no GPU.\n\n\
         ![Memory and time of every allocator on every trace](peers.svg)\n\n{}",
        introduction()
    );
    page += "\n## The run\n\n";
    for (name, value) in &results.circumstances {
        let _ = writeln!(page, "- {name}: {value}");
    }
    let _ = writeln!(page, "- {}", driver_time_source(results));
    for (heading, explanation, cell) in SECTIONS {
        let _ = write!(page, "\n## {heading}\n\n{explanation}\n\n{}", table(results, cell));
    }
    page
}

fn introduction() -> String {
    format!(
        "- **The same calls.** Every allocator replays the same prepared program in the same loop \
         (`crates/genesis-replay`), through the same C functions. PyTorch's allocator and RMM's \
         pool are behind adapters (`benches/peers`) of a few instructions a call, and PyTorch's \
         runs without Python.\n\
         - **The same driver.** Every allocator runs on `crates/simcuda`, CUDA's own symbols over \
         a software model. It counts physical memory, calls and their price; work on streams is \
         complete at once. So memory and driver calls are exact and repeatable. Times are those of \
         the allocators' own code and of the stand-in's, which counts most for allocators that \
         call the driver often (Naive, and RMM's pool with an event for each free).\n\
         - **Compare within the page.** Nanoseconds depend on the machine and on its other load; \
         only ratios within one run are comparable.\n\
         - PyTorch native is PyTorch {PYTORCH_VERSION} without options, expandable is the same \
         with `expandable_segments:True`. RMM pool is `pool_memory_resource` of RMM \
         {RMM_VERSION} over `cuda_memory_resource`, with no initial size and no maximum, so it \
         doubles as it grows. It has no `record_stream`, so programs that need one are left out \
         ({NOTHING}).\n\
         - PyTorch prefers the lowest address among free blocks of one size, so its figures, and \
         those of Genesis's Caching, depend a little on the order in which a driver hands out \
         addresses. Here the order is from high to low, as in PyTorch's recorded runs. From low to \
         high (`SIMCUDA_ADDRESSES`), PyTorch native reserves 1.105 instead of 1.197 times the live \
         peak on diffusion_buckets and 2.003 instead of 2.001 on opt13_recompute_var.\n"
    )
}

/// The source of driver time, from the reports of all replays.
fn driver_time_source(results: &Results) -> String {
    let measured = results.measured.values().flat_map(BTreeMap::values);
    let mut sources: Vec<String> =
        measured.map(|one| one.single.first().driver_time_source()).collect();
    sources.sort();
    sources.dedup();
    sources.join("; ")
}

fn table(results: &Results, cell: Cell) -> String {
    let mut table = format!("| trace | {} |\n", results.subjects.join(" | "));
    table += &format!("|---|{}\n", "---:|".repeat(results.subjects.len()));
    for trace in &results.traces {
        let yardstick = results.get(trace, YARDSTICK);
        let cells = results.subjects.iter().map(|subject| {
            let measured = results.get(trace, subject);
            measured.and_then(|one| cell(one, yardstick)).unwrap_or_else(|| NOTHING.to_owned())
        });
        table += &format!("| {trace} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    table
}

fn ratio(value: f64) -> String {
    format!("{value:.3}")
}

/// Nanoseconds, and in brackets their ratio to the yardstick's.
fn times(
    of: fn(&Rounds) -> Option<f64>,
    rounds: &Rounds,
    yardstick: Option<&Rounds>,
) -> Option<String> {
    let ns = of(rounds)?;
    Some(match yardstick.and_then(of) {
        Some(yardstick_ns) => format!("{ns:.0} ({:.2})", ns / yardstick_ns),
        None => format!("{ns:.0}"),
    })
}

fn by_pass(measured: &Measured, show: fn(&Pass) -> String) -> Option<String> {
    let report = measured.single.first();
    Some(format!("{} / {}", show(&report.cold), show(report.warm.last()?)))
}

/// The run's date, machine, versions and settings.
pub(crate) fn circumstances(passes: u16, prices: &str) -> Vec<(String, String)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    [
        ("date", first_line_of("date", &["-u", "+%Y-%m-%d"])),
        ("processor", format!("{}, {cores} cores for the run", processor())),
        ("load when it began", load()),
        ("system", first_line_of("uname", &["-sm"])),
        ("Genesis", first_line_of("git", &["describe", "--always", "--dirty"])),
        ("PyTorch", PYTORCH_VERSION.to_owned()),
        ("RMM", RMM_VERSION.to_owned()),
        (
            "compilers",
            format!(
                "{}; {}",
                first_line_of("rustc", &["-V"]),
                first_line_of("c++", &["--version"])
            ),
        ),
        ("passes", format!("{passes} in each process, unless said otherwise")),
        ("driver time", format!("by the prices of {prices}")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// The machine's load, which affects the times.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let minute = text.split_whitespace().next().unwrap_or("unknown");
    format!("{minute} processes running, on average over a minute")
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    match (value("model name"), value("cpu family"), value("model\t")) {
        (Some(name), Some(family), Some(model)) => {
            format!("{name} (family {family}, model {model})")
        }
        (name, _, _) => name.unwrap_or_else(|| "unknown".to_owned()),
    }
}

/// The first line that a program prints.
fn first_line_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.ok()
        .and_then(|text| text.lines().next().map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}
