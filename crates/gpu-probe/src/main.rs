//! `gpu-probe`: measures a GPU, its driver, and Genesis on them, from a folder that was built
//! elsewhere.
//!
//! `gpu-probe run` does everything and writes `gpu.json` and `gpu.md`. The other commands are its
//! parts, each run in a process of its own, so that a part that fails or hangs costs only itself.
//! A part prints its result as JSON in its last line.
//!
//! ```text
//! budget, child     limits of time, and other programs within them
//! folder            the files that are carried
//! sections          the parts of a run; python, static_runtime: two made of other programs
//! driver            the driver's functions as probes call them
//! facts             questions to the driver
//! assumptions       what the design relies on, by experiments that can refute it
//! costs             the time of driver calls
//! heap              every strategy on the driver, with its bytes checked
//! pytorch_checks    what PyTorch computes over Genesis
//! replays           recorded programs under Elastic and PyTorch's own allocator
//! report, page      the result, as JSON and for people
//! ```

mod assumptions;
mod budget;
mod child;
mod costs;
mod driver;
mod facts;
mod folder;
mod heap;
mod page;
mod python;
mod pytorch_checks;
mod replays;
mod report;
mod sections;
mod static_runtime;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use serde::Serialize;

use assumptions::Counts;
use budget::Budget;
use driver::Driver;
use folder::Folder;
use report::{Machine, Report};
use sections::section;

/// Measure a GPU, its driver, and Genesis on them.
#[derive(Debug, Parser)]
#[command(name = "gpu-probe", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Everything, into gpu.json and gpu.md
    Run(RunArguments),
    /// What the machine is
    Machine,
    /// One question to the driver
    Fact {
        /// The probe's name
        name: String,
    },
    /// One assumption of the design, by experiment
    Assumption {
        /// The assumption's name
        name: String,
        /// The most time it may take
        #[arg(long, default_value_t = 30.0)]
        seconds: f64,
        #[command(flatten)]
        counts: Counts,
    },
    /// A process that has memory cached, for an assumption
    #[command(hide = true)]
    Neighbour {
        /// How much
        bytes: u64,
    },
    /// What driver calls cost
    Costs {
        /// How long to measure
        #[arg(long)]
        seconds: f64,
    },
    /// One strategy on the driver
    Heap {
        /// The strategy's name
        strategy: String,
        /// How long to work
        #[arg(long)]
        seconds: f64,
    },
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// The folder for gpu.json and gpu.md
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    output: PathBuf,
    /// Which driver to run on
    #[arg(long, value_enum, default_value_t)]
    driver: Choice,
    /// The Python that has PyTorch [default: python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// The most time that everything may take
    #[arg(long, default_value_t = 540.0)]
    seconds: f64,
    /// Also ask for more managed memory than the device has, which can hang a GPU that is shared;
    /// always done on the simulated driver
    #[arg(long)]
    oversubscribe: bool,
    #[command(flatten)]
    counts: Counts,
}

/// Which driver to run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// The machine's, or the simulated one if it has none
    #[default]
    Auto,
    /// The machine's
    Real,
    /// The simulated one
    Simulated,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Part::Run(arguments) => run(&arguments),
        Part::Machine => print(machine()),
        Part::Fact { name } => {
            print(facts::find(&name).map(facts::Probe::ask).ok_or(format!("{name} is no probe")))
        }
        Part::Assumption { name, seconds, counts } => print(
            assumptions::find(&name)
                .map(|found| found.examine(counts, Duration::from_secs_f64(seconds)))
                .ok_or(format!("{name} is no assumption")),
        ),
        Part::Neighbour { bytes } => assumptions::be_neighbour(bytes),
        Part::Costs { seconds } => print(costs::measure(Duration::from_secs_f64(seconds))),
        Part::Heap { strategy, seconds } => {
            print(heap::run(&strategy, Duration::from_secs_f64(seconds)))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("gpu-probe: {message}");
            ExitCode::FAILURE
        }
    }
}

fn print<T: Serialize>(result: Result<T, String>) -> Result<(), String> {
    let text = serde_json::to_string(&result?).map_err(|error| error.to_string())?;
    println!("{text}");
    Ok(())
}

/// What the driver says of the machine.
fn machine() -> Result<Machine, String> {
    let driver = Driver::open()?;
    let (free_bytes, memory_bytes) = driver.memory_info()?;
    Ok(Machine {
        simulated: driver.is_simulated(),
        prices: driver.simulated_prices(),
        gpu: driver.name()?,
        memory_bytes,
        used_bytes: memory_bytes.saturating_sub(free_bytes),
        cuda: driver.cuda_version()?,
        ..Machine::default()
    })
}

/// Chooses the driver and asks it what the machine is.
fn examine(folder: &mut Folder, choice: Choice) -> Result<Machine, String> {
    const LIMIT: Duration = Duration::from_secs(60);
    let is_there = genesis::driver::cuda::is_present();
    folder.simulated = match choice {
        Choice::Real => false,
        Choice::Simulated => true,
        // A driver that is there but fails must be reported, not replaced.
        Choice::Auto => !is_there,
    };
    let asked: Machine = child::run(folder.probe(&["machine"]), LIMIT)?.value()?;
    let own = |program: &str, arguments: &[&str]| said_by(program, arguments);
    Ok(Machine {
        driver: own("nvidia-smi", &["--query-gpu=driver_version", "--format=csv,noheader"])
            .filter(|_| !asked.simulated),
        genesis: folder.version(),
        system: own("uname", &["-sm"]).unwrap_or_default(),
        date: report::today(),
        ..asked
    })
}

/// The first line that a program prints.
fn said_by(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .next()
        .map(str::to_owned)
        .filter(|line| output.status.success() && !line.is_empty())
}

fn run(arguments: &RunArguments) -> Result<(), String> {
    let started = Instant::now();
    let mut folder = Folder::find()?;
    let machine = examine(&mut folder, arguments.driver)?;
    let kind = if machine.simulated { "simulated: there is no GPU" } else { "real" };
    eprintln!("{}, CUDA {} ({kind})", machine.gpu, machine.cuda);
    let python = python::find(arguments.python.as_deref());
    let oversubscribe = arguments.oversubscribe || machine.simulated;
    let seconds = Duration::from_secs_f64;
    let budget = Budget::new(started, seconds(arguments.seconds));
    let mut report = Report {
        machine,
        seconds: 0.0,
        facts: section("Facts", &budget, seconds(60.0), |limit| {
            sections::facts(&folder, oversubscribe, limit)
        }),
        assumptions: section("Assumptions", &budget, seconds(150.0), |limit| {
            sections::assumptions(&folder, arguments.counts, limit)
        }),
        conformance: section("Conformance", &budget, seconds(60.0), |limit| {
            sections::conformance(&folder, oversubscribe, limit)
        }),
        heap: section("Strategies", &budget, seconds(40.0), |limit| {
            sections::strategies(&folder, limit)
        }),
        costs: section("Costs", &budget, seconds(60.0), |limit| sections::costs(&folder, limit)),
        static_runtime: section("Static runtime", &budget, seconds(40.0), |limit| {
            static_runtime::checks(&folder, &python, limit)
        }),
        replays: section("Recorded programs", &budget, seconds(120.0), |limit| {
            replays::replays(&folder, &python, limit)
        }),
        pytorch_checks: section("PyTorch's checks", &budget, seconds(150.0), |limit| {
            pytorch_checks::run(&folder, &python, limit)
        }),
        training: section("Training", &budget, seconds(320.0), |limit| {
            python::training(&folder, &python, limit)
        }),
    };
    report.seconds = started.elapsed().as_secs_f64();
    write(&arguments.output, &report)?;
    if report.has_defects() { Err("defects were found: see gpu.md".to_owned()) } else { Ok(()) }
}

fn write(output: &Path, report: &Report) -> Result<(), String> {
    let json = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    std::fs::create_dir_all(output).map_err(|error| format!("{}: {error}", output.display()))?;
    for (name, text) in [("gpu.json", json + "\n"), ("gpu.md", page::render(report))] {
        let path = output.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        eprintln!("{} is written", path.display());
    }
    Ok(())
}
