//! What happened: counters kept on the hot path, statistics made from them, the log, and the
//! recorder of traces.

mod counters;
mod log;
mod stats;
mod trace;

pub use counters::{LaneCounters, Peaks, Snapshot, Totals, Watermark};
pub use log::{Log, Sink};
pub use stats::{PoolStatistics, Statistics, Tallies};
pub use trace::{Recorder, Summary, Target};
