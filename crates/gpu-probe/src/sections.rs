//! The sections of a run, each within its limit of time: the programs they start, and how their
//! output becomes a result.
//!
//! A section that cannot be run has no result, and a note that says why. The others go on.

use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::assumptions::{self, ASSUMPTIONS, Counts, Finding};
use crate::budget::Budget;
use crate::child::{self, Finished};
use crate::costs::Costs;
use crate::facts::{Fact, PROBES, Verdict};
use crate::folder::Folder;
use crate::heap::{self, Trial};
use crate::report::{Failed, Machine, Report, Section, Suite};

/// What a section has found, with remarks for the reader.
pub(crate) struct Found<T> {
    pub(crate) result: Option<T>,
    pub(crate) notes: Vec<String>,
}

impl<T> Found<T> {
    /// A section that was not run, because of `reason`.
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self { result: None, notes: vec![reason.into()] }
    }
}

impl<T> From<Result<T, String>> for Found<T> {
    fn from(result: Result<T, String>) -> Self {
        match result {
            Ok(value) => Self { result: Some(value), notes: Vec::new() },
            Err(reason) => Self::skipped(reason),
        }
    }
}

/// A section of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    Facts,
    Assumptions,
    Conformance,
    Strategies,
    Costs,
    StaticRuntime,
    Replays,
    PytorchChecks,
    Training,
}

/// What is run, and how long.
pub(crate) struct Plan {
    budget: Budget,
    /// The sections that are run; empty for all.
    only: Vec<Name>,
    /// The report that the others are taken from.
    before: Option<Report>,
    /// By what sections are measured: the device, its driver, Genesis and the day.
    made: String,
}

impl Plan {
    /// Everything, or `only` some sections and the others as they are in `before`.
    pub(crate) fn new(
        budget: Budget,
        only: Vec<Name>,
        before: Option<Report>,
        machine: &Machine,
    ) -> Self {
        Self { budget, only, before, made: machine.to_string() }
    }

    /// Runs the section called `name` within its limit and what is left of the budget, or takes the
    /// one that was `kept`.
    pub(crate) fn section<T: Clone>(
        &self,
        name: Name,
        limit_seconds: f64,
        kept: impl FnOnce(&Report) -> &Section<T>,
        run: impl FnOnce(Duration) -> Found<T>,
    ) -> Section<T> {
        if let Some(before) = self.before.as_ref().filter(|_| !self.only.contains(&name)) {
            return kept(before).clone();
        }
        let (started, limit) = (Instant::now(), Duration::from_secs_f64(limit_seconds));
        let granted = self.budget.grant(started, limit);
        eprintln!("{name:?} (at most {:.0} s)", granted.as_secs_f64());
        let found = if granted.is_zero() {
            Found::skipped("Not run: no time was left.")
        } else {
            run(granted)
        };
        for note in &found.notes {
            eprintln!("  {note}");
        }
        Section {
            made: self.made.clone(),
            seconds: started.elapsed().as_secs_f64(),
            limit_seconds,
            notes: found.notes,
            result: found.result,
        }
    }
}

/// Why a question was not asked.
const NOT_OVERSUBSCRIBED: &str = "not asked without --oversubscribe: it asks for more managed \
                                  memory than there is, which can hang a GPU that is shared";

/// Every probe of the driver, each in a process of its own.
pub(crate) fn facts(folder: &Folder, oversubscribe: bool, limit: Duration) -> Found<Vec<Fact>> {
    /// More than any probe needs, because gates open by themselves.
    const MOST_TIME: Duration = Duration::from_secs(20);
    let budget = Budget::new(Instant::now(), limit);
    let facts = PROBES.iter().map(|probe| {
        if probe.oversubscribes() && !oversubscribe {
            return probe.fact(Err(NOT_OVERSUBSCRIBED.to_owned()));
        }
        let granted = budget.grant(Instant::now(), MOST_TIME);
        let mut command = folder.probe(&["fact", probe.name]);
        if folder.simulated {
            // Work must be able to stay pending, and to have bytes that can be read back.
            command.env("SIMCUDA_PROGRESS", "manual").env("SIMCUDA_STORE", "bytes");
            command.env("SIMCUDA_MEMORY", "8GiB");
        }
        let finished = child::run(command, granted);
        let fact = finished.and_then(|finished| finished.value::<Fact>());
        let fact = fact.unwrap_or_else(|reason| probe.fact(Err(reason)));
        if fact.verdict != Verdict::AsExpected {
            eprintln!("  {}: {} (expected: {})", fact.name, fact.observed, fact.expected);
        }
        fact
    });
    Found { result: Some(facts.collect()), notes: Vec::new() }
}

/// Every assumption of the design, each in a process of its own.
pub(crate) fn assumptions(folder: &Folder, counts: Counts, limit: Duration) -> Found<Vec<Finding>> {
    let budget = Budget::new(Instant::now(), limit);
    let findings = ASSUMPTIONS.iter().enumerate().map(|(done, assumption)| {
        // None may take the time of those after it.
        let granted = budget.share(Instant::now(), ASSUMPTIONS.len() - done);
        // A step that has begun when the time is over needs a little more.
        let seconds = granted.mul_f64(0.8).as_secs_f64().to_string();
        let mut command = folder.probe(&["assumption", assumption.name, "--seconds", &seconds]);
        command.args(counts.arguments());
        if folder.simulated {
            command.envs(assumption.simulation());
        }
        let finished = child::run(command, granted);
        let finding = finished.and_then(|finished| finished.value::<Finding>());
        let finding = finding.unwrap_or_else(|reason| assumption.not_tried(reason));
        if finding.verdict != assumptions::Verdict::Holds {
            eprintln!("  {}: {} ({})", finding.name, finding.verdict.text(), finding.seen);
        }
        finding
    });
    Found { result: Some(findings.collect()), notes: Vec::new() }
}

/// The suite that every implementation of a device must pass, on the real one.
pub(crate) fn conformance(folder: &Folder, oversubscribe: bool, limit: Duration) -> Found<Suite> {
    /// The case that asks for more managed memory than there is.
    const OVERSUBSCRIBING: &str = "managed_memory_may_be_more_than_there_is";
    let mut left_out = vec!["simcuda::"];
    if !oversubscribe {
        left_out.push(OVERSUBSCRIBING);
    }
    let mut found = Found::from(run_suite(folder, &left_out, limit));
    if !oversubscribe {
        found.notes.push(format!("{OVERSUBSCRIBING}: {NOT_OVERSUBSCRIBED}."));
    }
    found
}

/// Runs the suite's cases on the driver; it also has cases on a simulated one of its own.
fn run_suite(folder: &Folder, left_out: &[&str], limit: Duration) -> Result<Suite, String> {
    let mut command = folder.command(folder.file("bin/device_conformance")?);
    command.args(["cuda::", "--ignored"]).env("RUST_BACKTRACE", "0");
    if folder.simulated {
        command.env("SIMCUDA_STORE", "bytes").env("SIMCUDA_MEMORY", "4GiB");
    }
    command.args(left_out.iter().flat_map(|name| ["--skip", name]));
    let finished = child::run(command, limit)?;
    let suite = suite(&finished.output);
    if suite.passed.is_empty() && suite.failed.is_empty() {
        return Err(format!("No case of the suite ran: {}.", finished.reason()));
    }
    if !finished.is_success() && suite.failed.is_empty() {
        return Err(format!("The suite did not end well: {}.", finished.reason()));
    }
    Ok(suite)
}

/// The cases in the output of a test program.
fn suite(output: &str) -> Suite {
    let ended = |ending: &'static str| {
        let cases =
            output.lines().filter_map(move |line| line.strip_prefix("test ")?.strip_suffix(ending));
        cases.map(|name| name.trim_end_matches(" ...").to_owned())
    };
    let failed = |name: String| Failed { message: printed(output, &name), name };
    Suite { passed: ended(" ok").collect(), failed: ended(" FAILED").map(failed).collect() }
}

/// What the failed case `name` printed, in one line.
fn printed(output: &str, name: &str) -> String {
    let head = format!("---- {name} stdout ----");
    let after = output.lines().skip_while(|line| *line != head).skip(1);
    let own = after.take_while(|line| !line.starts_with("---- ") && *line != "failures:");
    let told: Vec<&str> =
        own.filter(|line| !line.is_empty() && !line.starts_with("note: ")).collect();
    told.join("; ")
}

/// Every strategy, in a process of its own.
pub(crate) fn strategies(folder: &Folder, limit: Duration) -> Found<Vec<Trial>> {
    let names: Vec<&str> = heap::strategies().collect();
    let each = limit / names.len().max(1) as u32;
    // Half of the time is for the start, the end and the timing of the hot path.
    let seconds = (each / 2).as_secs_f64().to_string();
    let mut found = Found { result: Some(Vec::new()), notes: Vec::new() };
    for name in names {
        let mut command = folder.probe(&["heap", name, "--seconds", &seconds]);
        if folder.simulated {
            command.env("SIMCUDA_STORE", "bytes").env("SIMCUDA_MEMORY", "4GiB");
            command.env("SIMCUDA_ON_VIOLATION", "abort");
        }
        match child::run(command, each).and_then(|finished| finished.value()) {
            Ok(trial) => found.result.get_or_insert_default().push(trial),
            Err(reason) => found.notes.push(format!("{name}: {reason}")),
        }
    }
    found
}

/// What driver calls cost.
pub(crate) fn costs(folder: &Folder, limit: Duration) -> Found<Costs> {
    // A step that has begun when the time is over needs a little more.
    let seconds = limit.mul_f64(0.8).as_secs_f64().to_string();
    let mut command = folder.probe(&["costs", "--seconds", &seconds]);
    if folder.simulated {
        command.env("SIMCUDA_RACES", "off");
    }
    child::run(command, limit).and_then(|finished: Finished| finished.value()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_from_what_tests_print() {
        let output = "running 3 tests\ntest cuda::one ... ok\ntest cuda::two ... FAILED\n\
                      test cuda::three ... ok\n\nfailures:\n\n---- cuda::two stdout ----\n\nat 3:5:\n\
                      left: 1\nnote: run with\n\n\nfailures:\n    cuda::two\n\
                      test result: FAILED. 2 passed; 1 failed\n";
        let suite = suite(output);
        assert_eq!(suite.passed, ["cuda::one", "cuda::three"]);
        let failed = Failed { name: "cuda::two".into(), message: "at 3:5:; left: 1".into() };
        assert_eq!(suite.failed, [failed]);
    }

    #[test]
    fn a_section_without_time_says_so() {
        let budget = Budget::new(Instant::now(), Duration::ZERO);
        let plan = Plan::new(budget, Vec::new(), None, &Machine::default());
        let section = plan.section(Name::Costs, 9.0, |report| &report.costs, |_| unreachable!());
        assert!(section.result.is_none() && section.notes[0].contains("no time"));
        assert_eq!(section.limit_seconds, 9.0);
    }

    #[test]
    fn sections_that_are_not_wanted_stay_as_they_are() {
        let mut before = Report::default();
        before.conformance.made = "another day".to_owned();
        let budget = Budget::new(Instant::now(), Duration::from_secs(9));
        let machine = Machine { gpu: "A GPU".to_owned(), ..Machine::default() };
        let plan = Plan::new(budget, vec![Name::Training], Some(before), &machine);
        let section =
            plan.section(Name::Conformance, 1.0, |report| &report.conformance, |_| unreachable!());
        assert_eq!(section.made, "another day");
        let run = |_| Found::skipped("a reason");
        let section = plan.section(Name::Training, 1.0, |report| &report.training, run);
        assert!(section.made.contains("A GPU") && section.notes == ["a reason"]);
        let all = Plan::new(budget, Vec::new(), None, &machine);
        let section = all.section(Name::Training, 1.0, |report| &report.training, run);
        assert_eq!(section.notes, ["a reason"]);
    }
}
