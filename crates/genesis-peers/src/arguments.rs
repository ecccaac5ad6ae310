//! The command line, and where the results of such a run go.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use steps::{root, target_folder};

use crate::run::Room;
use crate::subjects::{ELASTIC, EXPANDABLE, FINE, TIGHT, YARDSTICK};

/// Where the pages and pictures go, from the root of the repository.
const PAGE_FOLDER: &str = "docs/benchmarks";
/// The trace of `--smoke`.
const SMOKE_TRACE: &str = "alternating";
/// The passes of a long run.
const LONG_PASSES: u16 = 100;
/// The calls of a replay that is timed, at least.
const TIMED_CALLS: u64 = 1_000_000;
/// What complete runs measure.
const PRICES: &str = "h100";
const SUBJECTS: [Name; 3] = [Name::Expandable, Name::Elastic, Name::Tight];

/// Compare Genesis with PyTorch's own allocator and RMM's pool on the recorded programs
///
/// Without options it measures everything and writes the pages of docs/benchmarks, which takes
/// long. With --cells, --long or --smallest it measures only those, prints them, and writes their page to the
/// build folder.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask peers", max_term_width = 100)]
pub(crate) struct Arguments {
    /// Traces to replay, by name, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) traces: Vec<String>,
    /// A folder of other traces to replay: .gtr or .gtr.zst [default: the repository's traces]
    #[arg(long, value_name = "PATH")]
    pub(crate) trace_folder: Option<PathBuf>,
    /// Replay each trace so many times with other sizes, up to 15 % larger or smaller, instead of as it
    /// was recorded
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) varied: u64,
    /// How often every allocator is timed in turn
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,
    /// Passes of each process: the first is cold, the others are warm
    #[arg(long, value_name = "N", default_value_t = 12)]
    #[arg(value_parser = clap::value_parser!(u16).range(2..))]
    pub(crate) passes: u16,
    /// The prices of driver time: h100, a100, rtxpro6000, vattention, b300, h200 or h200rested
    #[arg(long, value_name = "NAME", default_value = PRICES)]
    pub(crate) prices: String,
    /// Measure only the cells: Elastic against expandable segments on devices of several sizes
    #[arg(long)]
    pub(crate) cells: bool,
    /// Measure only held memory over 100 passes, with ample memory; may go with --cells
    #[arg(long)]
    pub(crate) long: bool,
    /// Measure only the smallest device on which all passes complete; may go with --cells
    #[arg(long)]
    pub(crate) smallest: bool,
    /// Measure only calls of arenas, pools and managers, and print them
    #[arg(long)]
    pub(crate) objects: bool,
    /// The devices of the cells over the live peak, separated by commas, or `ample`
    #[arg(long, value_name = "ROOMS", value_delimiter = ',')]
    #[arg(default_values_t = Room::ALL)]
    pub(crate) rooms: Vec<Room>,
    /// The allocators of the cells, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    #[arg(default_values_t = SUBJECTS)]
    pub(crate) subjects: Vec<Name>,
    /// In the cells, measure only Genesis where an earlier run has the peers' figures: they do not
    /// change between runs
    #[arg(long)]
    pub(crate) keep_peers: bool,
    /// Only write the pages again, from what the last complete runs measured
    #[arg(long)]
    pub(crate) page: bool,
    /// Replay one short trace, to see that everything works: pages, pictures and results go to
    /// the build folder
    #[arg(long, conflicts_with_all = ["traces", "trace_folder", "varied", "rounds", "passes", "page"])]
    pub(crate) smoke: bool,
}

/// An allocator of the cells, as it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    Native,
    Expandable,
    Elastic,
    Fine,
    Tight,
}

/// The folders of a run's results.
#[derive(Debug)]
pub(crate) struct Places {
    /// Of pages and pictures.
    pub(crate) pages: PathBuf,
    /// Of the JSON that they are written from.
    pub(crate) kept: PathBuf,
    /// The file of every run of the cells, by what it measured.
    pub(crate) runs: PathBuf,
}

impl Name {
    /// The subject's name on the page.
    pub(crate) fn subject(self) -> &'static str {
        match self {
            Self::Native => YARDSTICK,
            Self::Expandable => EXPANDABLE,
            Self::Elastic => ELASTIC,
            Self::Fine => FINE,
            Self::Tight => TIGHT,
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = format!("{self:?}").to_lowercase();
        write!(formatter, "{name}")
    }
}

impl Arguments {
    /// The same, with what `--smoke` stands for.
    pub(crate) fn completed(mut self) -> Self {
        if self.smoke {
            self.traces = vec![SMOKE_TRACE.to_owned()];
            self.rounds = 1;
            self.passes = 2;
        }
        self
    }

    /// True if memory and times of all allocators are measured.
    pub(crate) fn has_times(&self) -> bool {
        !self.cells && !self.long && !self.smallest && !self.objects
    }

    /// The rooms of the cells; none if no cells are measured.
    pub(crate) fn rooms(&self) -> Vec<Room> {
        if self.cells || self.has_times() { self.rooms.clone() } else { Vec::new() }
    }

    /// The passes of long runs; `None` if there are none.
    pub(crate) fn long_passes(&self) -> Option<u16> {
        let passes = if self.smoke { self.passes } else { LONG_PASSES };
        (self.long || self.has_times()).then_some(passes)
    }

    /// The passes of a replay that is timed, of a program of `calls` calls. Where passes take less than
    /// a millisecond, the first dozens are those of threads that have just begun: slower, above all
    /// where two run at once.
    pub(crate) fn timed_passes(&self, calls: u64) -> u16 {
        let least = if self.smoke { 0 } else { TIMED_CALLS.div_ceil(calls.max(1)) };
        self.passes.max(least.try_into().unwrap_or(u16::MAX))
    }

    /// The folder of traces.
    pub(crate) fn trace_folder(&self) -> PathBuf {
        self.trace_folder.clone().unwrap_or_else(|| root().join("traces"))
    }

    /// Where results go. Those of complete runs only are kept for `--page`, and are the repository's
    /// pages.
    pub(crate) fn places(&self) -> Places {
        let folder = build_folder();
        let is_part = !self.traces.is_empty()
            || self.trace_folder.is_some()
            || self.varied > 0
            || self.prices != PRICES
            || self.rooms != Room::ALL
            || self.subjects != SUBJECTS;
        let (pages, kept) = match () {
            () if self.smoke => (folder.join("smoke"), folder.join("smoke")),
            () if self.page => (root().join(PAGE_FOLDER), folder),
            () if self.has_times() && !is_part => (root().join(PAGE_FOLDER), folder),
            () => (folder.join("part"), folder.join("part")),
        };
        let runs = if self.smoke { kept.clone() } else { build_folder() }.join("runs.json");
        Places { pages, kept, runs }
    }
}

/// The folder of everything that is built, installed and kept.
pub(crate) fn build_folder() -> PathBuf {
    target_folder().join("peers")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Arguments {
        Arguments::parse_from(std::iter::once("peers").chain(text.split_whitespace())).completed()
    }

    #[test]
    fn options_choose_what_is_measured() {
        let all = parse("");
        assert!(all.has_times() && all.rooms() == Room::ALL && all.long_passes() == Some(100));
        let cells = parse("--cells --rooms 1.05,ample --subjects elastic");
        assert_eq!(cells.rooms(), [Room::OverLive(1.05), Room::Ample]);
        assert!(!cells.has_times() && cells.long_passes().is_none());
        assert_eq!(cells.subjects, [Name::Elastic]);
        let long = parse("--long");
        assert!(!long.has_times() && long.rooms().is_empty() && long.long_passes() == Some(100));
        let smallest = parse("--smallest");
        assert!(!smallest.has_times() && smallest.rooms().is_empty());
        assert_eq!((parse("--smoke").passes, parse("--smoke").long_passes()), (2, Some(2)));
        assert_eq!([12_000, 200_000].map(|calls| all.timed_passes(calls)), [84, 12]);
        assert_eq!(parse("--smoke").timed_passes(12_000), 2);
    }

    #[test]
    fn only_complete_runs_are_kept_and_write_the_repositorys_pages() {
        for (text, is_complete) in [
            ("", true),
            ("--page", true),
            ("--cells", false),
            ("--traces alternating", false),
            ("--trace-folder .", false),
            ("--varied 2", false),
            ("--prices h200", false),
            ("--rooms ample", false),
            ("--subjects elastic", false),
            ("--smoke", false),
        ] {
            let Places { pages, kept, .. } = parse(text).places();
            assert_eq!(pages == root().join(PAGE_FOLDER), is_complete, "{text}");
            assert_eq!(kept == build_folder(), is_complete, "{text}");
        }
    }
}
