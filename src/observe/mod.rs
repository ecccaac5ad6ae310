//! What happened: counters kept on the hot path, statistics made from them, the log, and the
//! stream of events with those who take them in.

mod addresses;
mod counters;
mod events;
mod log;
mod profile;
pub mod publication;
mod sites;
mod stats;
mod trace;

pub use counters::{LaneCounters, Peaks, Snapshot, Totals, Watermark};
pub use events::{
    Action, Consumer, DeviceEvents, Event, EventStream, Names, SiteFinder, Subscription, Ticks,
};
pub use log::{Log, Sink};
pub use profile::{Beginning, Held, Known, Profiler};
pub use sites::{OTHERS, SiteTable, StackMap, UNKNOWN, location};
pub use stats::{PoolStatistics, Statistics, Tallies};
pub use trace::{Recorder, Summary, Target};
