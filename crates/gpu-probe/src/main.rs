//! `gpu-probe`: measures a GPU, its driver, and Genesis on them, from a folder that was built
//! elsewhere.
//!
//! `gpu-probe run` does everything, or some sections again, and writes `gpu.json` and `gpu.md`;
//! `gpu-probe page` writes the latter again. The other commands are its parts, each run in a process
//! of its own, so that a part that fails or hangs costs only itself. A part prints its result as JSON
//! in its last line.
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
use sections::{Name, Plan};

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
    /// Write gpu.md again, from gpu.json
    Page {
        /// The folder of both
        #[arg(long, value_name = "FOLDER", default_value = "results")]
        output: PathBuf,
    },
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
    /// Run these sections only; the others stay as they are in the gpu.json of --output
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<Name>,
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
        Part::Page { output } => read(&output).and_then(|report| write(&output, &report)),
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
    let memory_bytes = machine.memory_bytes;
    let kind = if machine.simulated { "simulated: there is no GPU" } else { "real" };
    eprintln!("{}, CUDA {} ({kind})", machine.gpu, machine.cuda);
    let python = python::find(arguments.python.as_deref());
    let oversubscribe = arguments.oversubscribe || machine.simulated;
    let budget = Budget::new(started, Duration::from_secs_f64(arguments.seconds));
    let before = (!arguments.only.is_empty()).then(|| read(&arguments.output)).transpose()?;
    let plan = Plan::new(budget, arguments.only.clone(), before.clone(), &machine);
    let report = Report {
        machine: before.map_or(machine, |before| before.machine),
        facts: plan.section(
            Name::Facts,
            60.0,
            |report| &report.facts,
            |limit| sections::facts(&folder, oversubscribe, limit),
        ),
        assumptions: plan.section(
            Name::Assumptions,
            150.0,
            |report| &report.assumptions,
            |limit| sections::assumptions(&folder, arguments.counts, limit),
        ),
        conformance: plan.section(
            Name::Conformance,
            60.0,
            |report| &report.conformance,
            |limit| sections::conformance(&folder, oversubscribe, limit),
        ),
        heap: plan.section(
            Name::Strategies,
            40.0,
            |report| &report.heap,
            |limit| sections::strategies(&folder, limit),
        ),
        costs: plan.section(
            Name::Costs,
            60.0,
            |report| &report.costs,
            |limit| sections::costs(&folder, limit),
        ),
        static_runtime: plan.section(
            Name::StaticRuntime,
            40.0,
            |report| &report.static_runtime,
            |limit| static_runtime::checks(&folder, &python, limit),
        ),
        replays: plan.section(
            Name::Replays,
            120.0,
            |report| &report.replays,
            |limit| replays::replays(&folder, &python, memory_bytes, limit),
        ),
        pytorch_checks: plan.section(
            Name::PytorchChecks,
            150.0,
            |report| &report.pytorch_checks,
            |limit| pytorch_checks::run(&folder, &python, limit),
        ),
        training: plan.section(
            Name::Training,
            320.0,
            |report| &report.training,
            |limit| python::training(&folder, &python, limit),
        ),
    };
    write(&arguments.output, &report)?;
    if report.has_defects() { Err("defects were found: see gpu.md".to_owned()) } else { Ok(()) }
}

/// The report of an earlier run.
fn read(output: &Path) -> Result<Report, String> {
    let path = output.join("gpu.json");
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
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
