//! Assumptions: what Genesis's design relies on, each tested on a driver by an experiment that can
//! refute it.
//!
//! A fact is a single question; an experiment is many rounds under load, or a table. Its verdict
//! is that the statement holds, does not hold, or could not be tried, with what was seen. The
//! page says what that means for the design. Each runs in a process of its own with a limit of
//! time, so one that hangs or faults costs only itself. A GPU may be shared: work that is held back
//! ends by itself, and nothing touches memory that is not mapped.

mod aliases;
mod captures;
mod communication;
mod handle_reuse;
mod mappings;
mod neighbours;
mod queue;
mod waits;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::costs;
use crate::driver::Driver;

/// How much of everything is tried.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Counts {
    /// Rounds through aliases, over all forms of them together
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) rounds: u64,
    /// Mappings made while a kernel streams
    #[arg(long, default_value_t = 100_000)]
    pub(crate) mappings: u64,
    /// Operations enqueued behind held work
    #[arg(long, default_value_t = 2_000)]
    pub(crate) launches: u64,
    /// Streams made until a handle comes again
    #[arg(long, default_value_t = 64)]
    pub(crate) streams: u64,
}

impl Counts {
    /// The same, as arguments of this program.
    pub(crate) fn arguments(self) -> [String; 4] {
        [
            format!("--rounds={}", self.rounds),
            format!("--mappings={}", self.mappings),
            format!("--launches={}", self.launches),
            format!("--streams={}", self.streams),
        ]
    }
}

/// What an experiment works with.
pub(crate) struct Bench {
    driver: Driver,
    counts: Counts,
    deadline: Instant,
}

impl Bench {
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

/// Figures of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    fn new(heads: &[&str]) -> Self {
        Self { heads: heads.iter().map(|head| (*head).to_owned()).collect(), rows: Vec::new() }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// What an experiment saw.
struct Outcome {
    holds: bool,
    seen: String,
    table: Option<Table>,
}

impl Outcome {
    fn new(holds: bool, seen: impl Into<String>) -> Self {
        Self { holds, seen: seen.into(), table: None }
    }

    fn with(self, table: Table) -> Self {
        Self { table: Some(table), ..self }
    }
}

/// An outcome, or the reason why there is none.
type Tried = Result<Outcome, String>;

/// A statement and the experiment that may refute it.
pub(crate) struct Assumption {
    pub(crate) name: &'static str,
    statement: &'static str,
    /// What Genesis may do if it holds, and must do if not.
    if_it_holds: &'static str,
    if_not: &'static str,
    /// True if memory would be corrupted if it did not hold.
    is_vital: bool,
    run: fn(&Bench) -> Tried,
}

/// What is known about a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Holds,
    DoesNotHold,
    NotTried,
}

impl Verdict {
    /// For a report.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "**does not hold**",
            Self::NotTried => "could not be tried",
        }
    }
}

/// An assumption and its verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) name: String,
    pub(crate) statement: String,
    pub(crate) verdict: Verdict,
    pub(crate) seen: String,
    /// What the verdict means for Genesis.
    pub(crate) meaning: String,
    /// True if it refutes an assumption that protects memory from corruption.
    pub(crate) is_defect: bool,
    pub(crate) table: Option<Table>,
}

impl Assumption {
    /// Makes the experiment, within `limit`.
    pub(crate) fn examine(&self, counts: Counts, limit: Duration) -> Finding {
        let deadline = Instant::now() + limit;
        let bench = Driver::open().map(|driver| Bench { driver, counts, deadline });
        self.finding(bench.and_then(|bench| (self.run)(&bench)))
    }

    /// Settings of the simulated driver. Work must be able to stay pending. Memory has bytes where
    /// they are read; the other experiments have none, because a process may not have as many real
    /// mappings as they make.
    pub(crate) fn simulation(&self) -> Vec<(&'static str, String)> {
        let has_bytes = self.name.starts_with("handle_reuse");
        let store = if has_bytes { "bytes" } else { "addresses" };
        // Several processes have one device only if they are told so.
        let is_shared = self.name.starts_with("neighbours");
        let progress = if is_shared { "automatic" } else { "manual" };
        let common = format!("/dev/shm/gpu-probe-{}", std::process::id());
        let common = if is_shared { common } else { String::new() };
        vec![
            ("SIMCUDA_PROGRESS", progress.to_owned()),
            ("SIMCUDA_STORE", store.to_owned()),
            ("SIMCUDA_MEMORY", "8GiB".to_owned()),
            ("SIMCUDA_DEVICES", "2".to_owned()),
            ("SIMCUDA_COMMON", common),
        ]
    }

    /// The finding of an experiment without an outcome.
    pub(crate) fn not_tried(&self, reason: String) -> Finding {
        self.finding(Err(reason))
    }

    fn finding(&self, tried: Tried) -> Finding {
        let (verdict, seen, table) = match tried {
            Ok(Outcome { holds: true, seen, table }) => (Verdict::Holds, seen, table),
            Ok(Outcome { holds: false, seen, table }) => (Verdict::DoesNotHold, seen, table),
            Err(reason) => (Verdict::NotTried, reason, None),
        };
        let meaning = match verdict {
            Verdict::Holds => self.if_it_holds,
            Verdict::DoesNotHold => self.if_not,
            Verdict::NotTried => "",
        };
        Finding {
            name: self.name.to_owned(),
            statement: self.statement.to_owned(),
            verdict,
            seen,
            meaning: meaning.to_owned(),
            is_defect: self.is_vital && verdict == Verdict::DoesNotHold,
            table,
        }
    }
}

/// The assumption called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Assumption> {
    ASSUMPTIONS.iter().find(|assumption| assumption.name == name)
}

mod list;
pub(crate) use list::ASSUMPTIONS;
pub(crate) use neighbours::be_neighbour;

/// The smallest sample that `part` of all do not exceed; 0 if there are none.
fn quantile(samples: &[u64], part: f64) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    costs::quantile(&sorted, part).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_assumptions_apart() {
        for assumption in ASSUMPTIONS {
            assert!(std::ptr::eq(find(assumption.name).unwrap(), assumption));
        }
        assert!(find("none").is_none());
    }

    #[test]
    fn outcomes_become_verdicts() {
        let assumption = find("handle_reuse_elastic").unwrap();
        let holds = assumption.finding(Ok(Outcome::new(true, "seen")));
        assert_eq!((holds.verdict, holds.is_defect), (Verdict::Holds, false));
        assert_eq!(holds.meaning, assumption.if_it_holds);
        let fails = assumption.finding(Ok(Outcome::new(false, "seen")));
        assert_eq!((fails.verdict, fails.is_defect), (Verdict::DoesNotHold, true));
        let untried = assumption.not_tried("ran out of time".to_owned());
        assert_eq!(
            (untried.verdict, untried.seen.as_str()),
            (Verdict::NotTried, "ran out of time")
        );
    }

    #[test]
    fn quantiles_are_samples() {
        assert_eq!(quantile(&[30, 10, 20], 0.5), 20);
        assert_eq!(quantile(&[30, 10, 20], 0.99), 30);
        assert_eq!(quantile(&[], 0.5), 0);
    }
}
