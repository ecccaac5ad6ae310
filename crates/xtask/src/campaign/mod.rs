//! `cargo xtask campaign`: tests that look for what nobody thought of. Each part that has no end of
//! its own runs for its share of the time given, and goes on another time where it stopped:
//!
//! | part | until | where it goes on |
//! |---|---|---|
//! | `omissions`: steps of stream order left out, one by one | its end | |
//! | `models`: threads under drawn schedules, small pieces in every order ([`models`]) | a quarter of the time, and its end | `target/campaign/next_schedule` |
//! | `interfaces`: the libraries' beside those of the last release ([`interfaces`]) | its end | |
//! | `dependencies`: known defects, licences and sources of crates ([`dependencies`]) | its end | |
//! | `oldest`: what ships, by the oldest compiler ([`oldest`]) | its end | |
//! | `sanitizers`: the library under TSan, ASan and LSan ([`sanitizers`]) | its end | |
//! | `coverage`: the lines that no test runs ([`coverage`]); only if named | its end | |
//! | `miri`: unit tests, interpreted ([`miri`]); only if named | its end | |
//! | `aarch64`: tests on another processor, by qemu-user ([`aarch64`]); only if named | its end | |
//! | `soak`: recorded programs again and again, whose heap must not grow ([`soak`]) | an eighth of the time | |
//! | `mutants`: small changes of the code, of which each must fail a test ([`mutants`]); only if named | an eighth of the time | `target/campaign/next_shard` |
//! | `lists`: random operations, a list for each seed, and runs of two or eight threads | a quarter of the time | `target/campaign/next_list`, `next_threads` |
//! | `fuzzing`: what the library reads, and C calls, guided by coverage | a quarter of the time | `target/fuzz/corpus` |
//!
//! What a part needs and this machine lacks is installed; where that fails, the part is listed at the
//! end.

mod aarch64;
mod coverage;
mod dependencies;
mod fuzzing;
mod interfaces;
mod lists;
mod miri;
mod models;
mod mutants;
mod oldest;
mod sanitizers;
mod soak;
mod toolchains;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use steps::{Outcome, target_folder};

pub(crate) use interfaces::{InterfacesArguments, interfaces};
pub(crate) use mutants::{MutantsArguments, mutants};

/// A round on two processors.
pub(crate) const HOUR_MINUTES: u64 = 60;

/// Runs tests that look for unknown defects: random operations, schedules, sanitizers, fuzzing
#[derive(Debug, Args)]
pub(crate) struct CampaignArguments {
    /// How long, in minutes
    #[arg(long, default_value_t = HOUR_MINUTES)]
    minutes: u64,
    /// Which parts; without any, all but `mutants`, `aarch64`, `coverage` and `miri`
    parts: Vec<Part>,
}

impl CampaignArguments {
    /// A round of so many `minutes`.
    pub(crate) fn of(minutes: u64) -> Self {
        Self { minutes, parts: Vec::new() }
    }

    fn has(&self, part: Part) -> bool {
        match &self.parts[..] {
            [] => !ONLY_IF_NAMED.contains(&part),
            named => named.contains(&part),
        }
    }
}

/// A part of the campaign, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Omissions,
    Models,
    Interfaces,
    Dependencies,
    Oldest,
    Sanitizers,
    Coverage,
    Miri,
    Aarch64,
    Soak,
    Mutants,
    Lists,
    Fuzzing,
}

/// The changes that no test notices are not yet looked at; the other processor's tests need much
/// memory; and what is not covered, or interpreted, changes little from one night to the next.
const ONLY_IF_NAMED: [Part; 4] = [Part::Mutants, Part::Aarch64, Part::Coverage, Part::Miri];

/// What could not be run here, and what it needs.
#[derive(Debug, Default)]
struct Left(Vec<String>);

impl Left {
    /// Returns true if what `part` needs was not `installed`; then the part is listed.
    fn lacks(&mut self, part: &str, installed: Outcome) -> bool {
        let Err(reason) = installed else { return false };
        self.0.push(format!("{part}: {reason}"));
        true
    }
}

/// Runs the parts, and those after one that failed too.
pub(crate) fn run_all(arguments: &CampaignArguments) -> Outcome {
    let time = Duration::from_secs(arguments.minutes * 60);
    let mut left = Left::default();
    let mut failures = Vec::new();
    for part in Part::value_variants() {
        if !arguments.has(*part) {
            continue;
        }
        let outcome = match part {
            Part::Omissions => lists::omissions(),
            Part::Models => models::run_all(time / 4),
            Part::Interfaces => interfaces::compare_all(&mut left),
            Part::Dependencies => dependencies::check(&mut left),
            Part::Oldest => oldest::check(&mut left),
            Part::Sanitizers => sanitizers::run_all(&mut left),
            Part::Coverage => coverage::run_all(&mut left),
            Part::Miri => miri::run_all(&mut left),
            Part::Aarch64 => aarch64::run_all(&mut left),
            Part::Soak => soak::run_for(time / 8),
            Part::Mutants => mutants::run_for(time / 8, &mut left),
            Part::Lists => lists::run_for(time / 4),
            Part::Fuzzing => fuzzing::run_for(time / 4),
        };
        failures.extend(outcome.err().map(|error| format!("{part:?}: {error}")));
    }
    for line in &left.0 {
        eprintln!("not run here: {line}");
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// A folder of the build's, made if it is missing.
fn folder(name: &str) -> Result<PathBuf, String> {
    let folder = target_folder().join(name);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// A number that goes on where the last round stopped, in a file of `target/campaign`.
struct Next(PathBuf);

impl Next {
    fn of(name: &str) -> Result<Self, String> {
        Ok(Self(folder("campaign")?.join(name)))
    }

    fn get(&self) -> u64 {
        fs::read_to_string(&self.0).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    fn set(&self, next: u64) -> Outcome {
        fs::write(&self.0, next.to_string())
            .map_err(|error| format!("{}: {error}", self.0.display()))
    }
}
