//! Counters of the hot path, the statistics made from them, the log, and the stream of events with
//! its consumers.
//!
//! An *event* is one thing that happened, such as an allocation. A *consumer* takes events in
//! order: the recorder of traces, and the profile. The *levels* of a device are its requested,
//! allocated, active and reserved bytes at one moment. A profile's *history* is its latest events.

mod addresses;
mod changing;
mod combined;
mod counters;
mod events;
mod growth;
mod levels;
mod log;
mod profile;
mod progress;
pub mod publication;
mod sites;
mod stats;
mod trace;
mod watermarks;

pub use combined::{Combined, Turn};
pub use counters::{LaneCounters, Outside, Peaks, Watermark};
pub use events::{
    Action, Consumer, DeviceEvents, Event, EventStream, Names, SiteFinder, Subscription, Ticks,
};
pub use growth::{Growth, Outlook, Possible, StepLevels};
pub use levels::{Snapshot, Totals};
pub use log::{Log, Sink};
pub use profile::{Beginning, Held, Keeping, Profiler};
pub use progress::ProgressLine;
pub use sites::{OTHERS, SiteTable, StackMap, UNKNOWN, location};
pub use stats::{PoolStatistics, Statistics, Tallies};
pub use trace::{Recorder, Summary, Target};
