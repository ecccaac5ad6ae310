//! How often programs fail on devices with little room, and what it costs them to fit.
//!
//! `cargo bench --bench little_room -- --help` names the options. Twelve passes of each program, in virtual
//! time and at an H100's prices, so the figures are the same everywhere. By default the programs are the
//! recorded ones with other sizes, because one recording is one draw. With `--features ablations`, a part of
//! the policy can be left out.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;

use clap::Parser;
use genesis::config::ElasticPolicy;
#[cfg(feature = "ablations")]
use genesis::heap::ablation::{Part, leave_out};
use genesis_replay::program::Program;
use simgpu::Prices;
use support::host_memory::Counting;
use support::replay::{
    MEASURED_PASSES, Outcome, RECORDED, mean_held, measure, programs_in, recorded,
    recorded_with_other_sizes,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often programs fail on devices with little room.
#[derive(Debug, Parser)]
struct Options {
    /// Sizes of the device, over a program's live peak.
    #[arg(long, value_delimiter = ',', default_values_t = [1.01, 1.02, 1.05])]
    rooms: Vec<f64>,
    /// How often the sizes of each recorded program are drawn anew; 0 takes it as it was recorded.
    #[arg(long, default_value_t = 12)]
    draws: u64,
    /// The recorded programs: by default all but the smallest.
    #[arg(long, value_delimiter = ',', default_values = &RECORDED[1..])]
    programs: Vec<String>,
    /// Other traces instead: all of a folder.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Elastic's policy.
    #[arg(long, default_value = "balanced", value_parser = parse_policy)]
    policy: ElasticPolicy,
    /// Leaves a part of the policy out, such as packing.
    #[cfg(feature = "ablations")]
    #[arg(long, value_parser = parse_part)]
    without: Option<Part>,
    /// Prints a line for each program, too.
    #[arg(long)]
    each: bool,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

fn parse_policy(name: &str) -> Result<ElasticPolicy, String> {
    let mut policies = ElasticPolicy::ALL.iter().copied();
    policies.find(|policy| policy.name() == name).ok_or_else(|| format!("no policy {name}"))
}

#[cfg(feature = "ablations")]
fn parse_part(name: &str) -> Result<Part, String> {
    let mut parts = Part::ALL.into_iter();
    parts
        .find(|part| format!("{part:?}").eq_ignore_ascii_case(name))
        .ok_or_else(|| format!("no part {name}, but {:?}", Part::ALL))
}

fn main() {
    let options = Options::parse();
    #[cfg(feature = "ablations")]
    leave_out(options.without);
    let programs = options.programs();
    println!(
        "| device | fail | held | most held | first pass, ms | a pass, ms | most a pass, ms |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for &room in &options.rooms {
        let measure = |(name, program): &(String, Program)| {
            let device_bytes = (program.live_peak_bytes as f64 * room) as u64;
            let outcome = measure(program, options.policy, Prices::H100, device_bytes);
            if options.each {
                print_program(name, room, outcome.as_ref());
            }
            outcome
        };
        let outcomes: Vec<Option<Outcome>> = programs.iter().map(measure).collect();
        print_room(room, &outcomes);
    }
    println!(
        "\n{} policy; held: the geometric mean, times: sums, of the programs that complete \
         {MEASURED_PASSES} passes",
        options.policy.name()
    );
}

impl Options {
    /// The programs, with their names.
    fn programs(&self) -> Vec<(String, Program)> {
        if let Some(folder) = &self.folder {
            return programs_in(folder);
        }
        let draws = |name: &String| {
            let name = name.clone();
            let drawn = (1..=self.draws).map(move |seed| {
                (format!("{name} {seed}"), recorded_with_other_sizes(&name, seed))
            });
            drawn.collect::<Vec<_>>()
        };
        match self.draws {
            0 => self.programs.iter().map(|name| (name.clone(), recorded(name))).collect(),
            _ => self.programs.iter().flat_map(draws).collect(),
        }
    }
}

fn print_program(name: &str, room: f64, outcome: Option<&Outcome>) {
    match outcome {
        None => println!("{name} on {room}: fails"),
        Some(Outcome { held, cold_ms, warm_ms }) => println!(
            "{name} on {room}: holds {held:.4}, first pass {cold_ms:.0} ms, then {warm_ms:.1} ms a \
             pass"
        ),
    }
}

fn print_room(room: f64, outcomes: &[Option<Outcome>]) {
    let completed = || outcomes.iter().flatten();
    let count = outcomes.len();
    let failed = count - completed().count();
    if failed == count {
        println!("| {room} | {failed} of {count} | – | – | – | – | – |");
        return;
    }
    let held = mean_held(completed());
    let most_held = completed().map(|outcome| outcome.held).fold(0.0, f64::max);
    let cold_ms: f64 = completed().map(|outcome| outcome.cold_ms).sum();
    let warm_ms: f64 = completed().map(|outcome| outcome.warm_ms).sum();
    let most_ms = completed().map(|outcome| outcome.warm_ms).fold(0.0, f64::max);
    println!(
        "| {room} | {failed} of {count} | {held:.4} | {most_held:.4} | {cold_ms:.0} | {warm_ms:.0} | \
         {most_ms:.0} |"
    );
}
