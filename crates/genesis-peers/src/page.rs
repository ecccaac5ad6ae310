//! The page: what was measured, how, and on which machine; a table for each quantity.

use std::fmt::Write;

use genesis_replay::report::Pass;
use genesis_replay::table::{duration, grouped};

use crate::install::{PYTORCH_VERSION, RMM_VERSION};
use crate::objects;
use crate::results::{Instructions, Measured, Results, Rounds, geometric_mean};
use crate::subjects::YARDSTICK;

const NOTHING: &str = "–";

/// A cell's text for a measurement, given the yardstick's of the same trace.
type Cell = fn(&Measured, Option<&Measured>) -> Option<String>;

/// A number for a measurement, given the yardstick's of the same trace.
type Number = fn(&Measured, Option<&Measured>) -> Option<f64>;

/// A table of the page.
struct Section {
    heading: &'static str,
    explanation: &'static str,
    cell: Cell,
    /// The numbers whose geometric means over the traces are the last row, if there is one.
    mean: Option<Number>,
}

const SECTIONS: [Section; 16] = [
    Section {
        heading: "Memory reserved over memory live",
        explanation: "The peak of physical memory taken from the device over the peak of what the \
            program had live, as requested; first pass, ample memory. 1 is the best possible. \
            [cells.md](cells.md) has the peaks over many passes.",
        cell: |measured, _| measured.single.first().reserved_over_live().map(ratio),
        mean: Some(|measured, _| measured.single.first().reserved_over_live()),
    },
    Section {
        heading: "Smallest device",
        explanation: "The least memory on which no request of any pass fails, over the live peak; \
            found to 0.1 % by bisection, each probe in its own process. Completing is not strictly \
            monotonic in the size, so near the threshold this is one of several values.",
        cell: |measured, _| smallest_over_live(measured).map(ratio),
        mean: Some(|measured, _| smallest_over_live(measured)),
    },
    Section {
        heading: "Nanoseconds per call, one thread, warm",
        explanation: "Of the passes after the first, of several processes, a tenth took less: \
            other load on the machine only adds to a time. In brackets over PyTorch native. Short \
            programs make more passes than others, at least a million calls in all and as many as \
            take 0.15 s (at most eight times as many), as in all tables below that do not say \
            otherwise. This includes the replay's own loop, a nanosecond or two. Means are of the \
            ratios.",
        cell: |measured, yardstick| {
            times(Rounds::warm_ns, &measured.single, yardstick.map(|one| &one.single))
        },
        mean: Some(|measured, yardstick| {
            Some(measured.single.warm_ns()? / yardstick?.single.warm_ns()?)
        }),
    },
    Section {
        heading: "Instructions per call, one thread, warm",
        explanation: "Of the allocator and of the stand-in beneath it, without the replay's loop, \
            counted by valgrind in the third pass, of shorter programs in one up to the twelfth; in \
            brackets over PyTorch native. They hardly depend on the machine. Not counted for all \
            allocators.",
        cell: |measured, yardstick| {
            let own = measured.instructions?.all;
            Some(match yardstick.and_then(|one| one.instructions) {
                Some(yardstick) => format!("{own:.0} ({:.2})", own / yardstick.all),
                None => format!("{own:.0}"),
            })
        },
        mean: Some(|measured, yardstick| {
            Some(measured.instructions?.all / yardstick?.instructions?.all)
        }),
    },
    Section {
        heading: "The stand-in's own instructions per call",
        explanation: "Those of the table above that the driver's stand-in runs, in brackets their \
            share; what it calls of the C library is not among them. A real driver takes another \
            time for the same calls.",
        cell: |measured, _| {
            let Instructions { all, stand_in } = measured.instructions?;
            Some(format!("{stand_in:.0} ({:.0} %)", 100.0 * stand_in / all))
        },
        mean: None,
    },
    Section {
        heading: "Nanoseconds per call, two threads, warm",
        explanation: "Each thread replays the whole program on its own streams, both at once; time \
            per call of one thread, in brackets over PyTorch native.",
        cell: |measured, yardstick| {
            times(Rounds::warm_ns, &measured.double, yardstick.map(|one| &one.double))
        },
        mean: Some(|measured, yardstick| {
            Some(measured.double.warm_ns()? / yardstick?.double.warm_ns()?)
        }),
    },
    Section {
        heading: "Two threads over one",
        explanation: "The time per call of two threads at once over that of one thread alone, \
            warm; in brackets two processes over one, which is the machine's part of it.",
        cell: |measured, _| {
            let alone_ns = measured.single.warm_ns()?;
            let processes = measured.processes.warm_ns()? / alone_ns;
            Some(format!("{:.2} ({processes:.2})", measured.double.warm_ns()? / alone_ns))
        },
        mean: Some(|measured, _| Some(measured.double.warm_ns()? / measured.single.warm_ns()?)),
    },
    Section {
        heading: "Nanoseconds per call, eight threads, warm",
        explanation: "As with two threads, measured once. Where the machine has fewer cores, a \
            thread also waits for others that were stopped while they held a lock. In brackets \
            over PyTorch native.",
        cell: |measured, yardstick| {
            let yardstick = yardstick.and_then(|one| one.many.as_ref());
            times(Rounds::warm_ns, measured.many.as_ref()?, yardstick)
        },
        mean: Some(|measured, yardstick| {
            Some(measured.many.as_ref()?.warm_ns()? / yardstick?.many.as_ref()?.warm_ns()?)
        }),
    },
    Section {
        heading: "Nanoseconds per call, two processes, warm",
        explanation: "Two processes at once, each with one thread and its own driver; in brackets \
            over PyTorch native. The time beyond one thread alone comes from the machine, not from \
            the allocator; two threads have the same share of it.",
        cell: |measured, yardstick| {
            times(Rounds::warm_ns, &measured.processes, yardstick.map(|one| &one.processes))
        },
        mean: None,
    },
    Section {
        heading: "Nanoseconds per call, one thread, cold",
        explanation: "The first pass, with nothing cached before it, and without the time that a \
            real driver would have taken; in brackets over PyTorch native.",
        cell: |measured, yardstick| {
            times(Rounds::cold_ns, &measured.single, yardstick.map(|one| &one.single))
        },
        mean: None,
    },
    Section {
        heading: "Memory reserved over memory live, two threads",
        explanation: "Like the first table, with two threads: over twice the program's live peak, \
            though the two threads need not peak at the same time. How they overlap differs from \
            run to run.",
        cell: |measured, _| measured.double.first().reserved_over_live().map(ratio),
        mean: None,
    },
    Section {
        heading: "Memory reserved over memory live, eight threads",
        explanation: "With eight threads, over eight times the program's live peak; the most of all \
            passes.",
        cell: |measured, _| measured.many.as_ref()?.first().reserved_over_live_in_all().map(ratio),
        mean: None,
    },
    Section {
        heading: "Driver calls in a pass",
        explanation: "Every call that reaches the driver, including queries of events: first pass, \
            then the last. In brackets, those of the last pass that do not concern events as a \
            part of the program's calls.",
        cell: |measured, _| {
            let calls = by_pass(measured, |pass| grouped(pass.driver_calls))?;
            let report = measured.single.first();
            let last = report.passes().last()?;
            let others = last.driver_calls - last.driver_event_calls?;
            Some(format!("{calls} ({:.3} %)", 100.0 * others as f64 / report.calls as f64))
        },
        mean: None,
    },
    Section {
        heading: "Driver time in a pass",
        explanation: "What a real driver would have taken for these calls by the stand-in's \
            prices, which are published measurements (`crates/simgpu/src/prices.rs`) of the \
            machine named above: first pass, then the last.",
        cell: |measured, _| by_pass(measured, |pass| duration(pass.driver_ns)),
        mean: None,
    },
    Section {
        heading: "Waits of the host",
        explanation: "Calls of all passes in which the host waits for the device: synchronising \
            ones and `cuMemFree`. One thread, then two.",
        cell: |measured, _| {
            let waits = |rounds: &Rounds| rounds.first().host_waits().map(grouped);
            Some(format!("{} / {}", waits(&measured.single)?, waits(&measured.double)?))
        },
        mean: None,
    },
    Section {
        heading: "Driver calls in the last pass, two threads",
        explanation: "As above, of both threads together.",
        cell: |measured, _| {
            let last = measured.double.first().passes().last()?;
            Some(grouped(last.driver_calls))
        },
        mean: None,
    },
];

/// The page in Markdown.
pub(crate) fn write(results: &Results) -> String {
    let mut page = format!(
        "# Genesis and its peers\n\n\
         Written by `cargo xtask peers`, which measures everything below in one run: it installs \
         the peers from the package registry, builds Genesis and a driver stand-in, and replays \
         the programs recorded in `traces/`. It needs Python 3 with `venv`, a C++ compiler, \
         valgrind and no GPU.\n\n\
         ![Memory and time of every allocator on every trace](peers.svg)\n\n{}",
        introduction()
    );
    page += "\n## The run\n\n";
    for (name, value) in &results.circumstances {
        let _ = writeln!(page, "- {name}: {value}");
    }
    for section in SECTIONS {
        let Section { heading, explanation, .. } = section;
        let _ = write!(page, "\n## {heading}\n\n{explanation}\n\n{}", table(results, &section));
    }
    if !results.objects.is_empty() {
        page += &objects::section(&results.objects);
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

fn table(results: &Results, section: &Section) -> String {
    let mut table = format!("| trace | {} |\n", results.subjects.join(" | "));
    table += &format!("|---|{}\n", "---:|".repeat(results.subjects.len()));
    for trace in &results.traces {
        let yardstick = results.get(trace, YARDSTICK);
        let cells = results.subjects.iter().map(|subject| {
            let measured = results.get(trace, subject);
            let cell = measured.and_then(|one| (section.cell)(one, yardstick));
            cell.unwrap_or_else(|| NOTHING.to_owned())
        });
        table += &format!("| {trace} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    table + &section.mean.map(|number| means(results, number)).unwrap_or_default()
}

/// The row of geometric means; nothing for a subject that lacks a trace, because its mean could not
/// be compared.
fn means(results: &Results, number: Number) -> String {
    let of = |subject: &str, trace: &String| {
        number(results.get(trace, subject)?, results.get(trace, YARDSTICK))
    };
    let means = results.subjects.iter().map(|subject| {
        let numbers: Option<Vec<f64>> =
            results.traces.iter().map(|trace| of(subject, trace)).collect();
        let mean = numbers.and_then(geometric_mean);
        mean.map_or(NOTHING.to_owned(), ratio)
    });
    format!("| geometric mean | {} |\n", means.collect::<Vec<_>>().join(" | "))
}

fn smallest_over_live(measured: &Measured) -> Option<f64> {
    let live_bytes = measured.single.first().live_peak_bytes as f64;
    measured.smallest_device_bytes.map(|bytes| bytes as f64 / live_bytes)
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
