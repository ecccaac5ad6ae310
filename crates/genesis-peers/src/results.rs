//! What was measured, as plain data; kept as JSON.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use genesis_replay::report::{Report, median};
use serde::{Deserialize, Serialize};

/// The measurement of one subject on one trace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) single: Rounds,
    /// Two threads at once, each replaying the whole trace on its own streams.
    pub(crate) double: Rounds,
    /// Two processes at once, each with one thread.
    pub(crate) processes: Rounds,
    /// Eight threads at once, in one round; `None` if an earlier version kept this.
    #[serde(default)]
    pub(crate) many: Option<Rounds>,
    pub(crate) smallest_device_bytes: Option<u64>,
    /// Not counted for every subject.
    #[serde(default)]
    pub(crate) instructions: Option<Instructions>,
}

/// The instructions of a call in a warm pass.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Instructions {
    /// With the stand-in's.
    pub(crate) all: f64,
    /// The stand-in's own.
    pub(crate) stand_in: f64,
}

/// The reports of one replay, one for each round; never empty.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rounds(pub(crate) Vec<Report>);

/// Everything measured in one run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    /// The machine, versions and so on, as pairs of a name and a value.
    pub(crate) circumstances: Vec<(String, String)>,
    /// The subjects' names; the yardstick is the first.
    pub(crate) subjects: Vec<String>,
    /// The traces' names.
    pub(crate) traces: Vec<String>,
    /// By trace, then by subject. A trace that a subject cannot replay is left out.
    pub(crate) measured: BTreeMap<String, BTreeMap<String, Measured>>,
    /// What calls of arenas, pools and managers take; empty if an earlier version kept this.
    #[serde(default)]
    pub(crate) objects: Vec<Row>,
}

/// What a call of an object takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// `bump`, `pair`, `many` or `call`.
    pub(crate) what: String,
    /// The size of a request; 0 for a call that is none.
    pub(crate) bytes: u64,
    /// The object.
    pub(crate) who: String,
    /// Of one call, or of a pair of them.
    pub(crate) nanoseconds: f64,
}

impl Rounds {
    /// The first report: memory and driver calls of one thread are the same in every round.
    pub(crate) fn first(&self) -> &Report {
        &self.0[0]
    }

    /// The median time of a call in first passes, in nanoseconds.
    pub(crate) fn cold_ns(&self) -> Option<f64> {
        median(self.0.iter().map(|report| report.cold.ns_per_call).collect())
    }

    /// The time of a call in all other passes, in nanoseconds: a tenth of the passes took less. What
    /// else runs on the machine only adds to it, and here for minutes.
    pub(crate) fn warm_ns(&self) -> Option<f64> {
        let passes = self.0.iter().flat_map(|report| &report.warm);
        lower_decile(passes.map(|pass| pass.ns_per_call).collect())
    }
}

impl Measured {
    /// Adds another round.
    pub(crate) fn add(&mut self, round: Self) {
        self.single.0.extend(round.single.0);
        self.double.0.extend(round.double.0);
        self.processes.0.extend(round.processes.0);
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{:.3} × live, {:.0} ns a call, {:.0} ns with two threads",
            self.single.first().reserved_over_live().unwrap_or_default(),
            self.single.warm_ns().unwrap_or_default(),
            self.double.warm_ns().unwrap_or_default(),
        )
    }
}

impl Results {
    pub(crate) fn get(&self, trace: &str, subject: &str) -> Option<&Measured> {
        self.measured.get(trace)?.get(subject)
    }
}

/// A line on what could not be done with `path`.
pub(crate) fn failed(path: &Path, error: &dyn Display) -> String {
    format!("{}: {error}", path.display())
}

/// The value that a tenth of all are below; `None` of nothing.
fn lower_decile(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 10).copied()
}

/// The geometric mean; `None` of nothing.
pub(crate) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = values.into_iter().map(f64::ln).collect();
    let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
    (!logarithms.is_empty()).then(|| mean.exp())
}

#[cfg(test)]
mod tests {
    use super::{geometric_mean, lower_decile};

    #[test]
    fn a_tenth_is_below_the_lower_decile() {
        assert_eq!(lower_decile(vec![]), None);
        assert_eq!(lower_decile(vec![3.0, 2.0]), Some(2.0));
        assert_eq!(lower_decile((0..40).rev().map(f64::from).collect()), Some(4.0));
    }

    #[test]
    fn means_are_geometric() {
        assert_eq!(geometric_mean([]), None);
        assert!((geometric_mean([1.0, 4.0]).unwrap() - 2.0).abs() < 1e-12);
    }
}
