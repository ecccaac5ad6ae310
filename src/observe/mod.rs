//! What happened: counters kept on the hot path, statistics made from them, and the log.

mod counters;
mod log;
mod stats;

pub use counters::{LaneCounters, Peaks, Snapshot, Totals, Watermark};
pub use log::{Log, Sink};
pub use stats::{PoolStatistics, Statistics, Tallies};
