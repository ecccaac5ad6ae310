//! The profile: plain values, as the library records them and as JSON keeps them.
//!
//! Sizes are in bytes, times in nanoseconds since the profile began.
//!
//! | bytes | of |
//! |---|---|
//! | requested | requests, live |
//! | allocated | the blocks that serve them |
//! | active | these blocks, and freed blocks that other streams may still use |
//! | reserved | physical memory held from the driver |
//!
//! The history is bounded: of a long run it has the latest events, and `History::start` has the
//! levels when they begin, so that every sum over them is exact. Everything else covers the whole
//! run.

use serde::{Deserialize, Serialize};

/// The value of `Profile::format`.
pub const FORMAT: &str = "genesis profile 1";

/// The profile of a program's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: String,
    /// The version of the library.
    pub genesis_version: String,
    /// The program: its command line.
    pub program: String,
    /// Its process.
    pub process_id: u32,
    /// Its number among the processes of its program on all machines, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// When the profile began: nanoseconds since 1970, UTC.
    pub started_unix_ns: u64,
    /// The time from then until it was written.
    pub duration_ns: u64,
    /// The strategy.
    pub strategy: String,
    /// The backend.
    pub backend: String,
    /// Every device in use.
    pub devices: Vec<Device>,
    /// The streams; other fields refer to them by index.
    pub streams: Vec<Stream>,
    /// Annotations and tags; other fields refer to them by index.
    pub names: Vec<String>,
    /// Call sites; other fields refer to them by index. The first is unknown and has no frames.
    pub sites: Vec<Site>,
    /// Levels over the whole run, a row for each device.
    pub timelines: Vec<Timeline>,
    /// Counts by size.
    pub sizes: Vec<SizeSummary>,
    /// Counts by call site; empty if none were recorded.
    pub call_sites: Vec<SiteSummary>,
    /// The live blocks when the profile was written, largest first.
    pub live: Vec<LiveBlock>,
    /// The address space when the profile was written, by device and address.
    pub segments: Vec<Segment>,
    /// The latest events.
    pub history: History,
}

impl Profile {
    /// A copy in which the history has no events.
    pub(crate) fn without_events(&self) -> Self {
        let History { dropped_events, start, start_live, events: _ } = &self.history;
        Self {
            format: self.format.clone(),
            genesis_version: self.genesis_version.clone(),
            program: self.program.clone(),
            process_id: self.process_id,
            rank: self.rank,
            started_unix_ns: self.started_unix_ns,
            duration_ns: self.duration_ns,
            strategy: self.strategy.clone(),
            backend: self.backend.clone(),
            devices: self.devices.clone(),
            streams: self.streams.clone(),
            names: self.names.clone(),
            sites: self.sites.clone(),
            timelines: self.timelines.clone(),
            sizes: self.sizes.clone(),
            call_sites: self.call_sites.clone(),
            live: self.live.clone(),
            segments: self.segments.clone(),
            history: History {
                dropped_events: *dropped_events,
                start: start.clone(),
                start_live: start_live.clone(),
                events: Vec::new(),
            },
        }
    }
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its ordinal.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its memory.
    pub total_bytes: u64,
    /// The most that may be reserved: the limit if there is one, else all memory.
    pub usable_bytes: u64,
    /// Levels when the profile was written.
    pub now: Levels,
    /// The highest of each level since the profile began.
    pub peak: Levels,
    /// Blocks allocated since the profile began.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Allocations served from free blocks of their own stream.
    pub hits: u64,
    /// Allocations that failed because memory was short.
    pub out_of_memory_events: u64,
    /// 1 − largest free block / free bytes; 0 if nothing is free.
    pub fragmentation_index: f64,
    /// When memory will run out, if the program marks its steps and they need more and more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
}

impl Device {
    /// How many bytes more than the device has are reserved: managed memory.
    pub fn oversubscribed_bytes(&self) -> u64 {
        self.now.reserved_bytes.saturating_sub(self.total_bytes)
    }

    /// The most that these were.
    pub fn peak_oversubscribed_bytes(&self) -> u64 {
        self.peak.reserved_bytes.saturating_sub(self.total_bytes)
    }
}

/// When the memory of a device will run out, as of the last step that the program has marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Steps that were marked.
    pub steps: u64,
    /// More bytes in each step.
    pub bytes_per_step: f64,
    /// After so many more steps memory runs out.
    pub steps_left: f64,
    /// The same if memory grows as fast as it sometimes did, and is as fragmented as so far.
    pub fewest_steps_left: f64,
    /// True if what is live at the end of a step grows; false if only the peak within a step does.
    pub is_leak: bool,
}

/// The levels of one device, or of one of its streams (which reserve nothing themselves).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    /// Live bytes as requested.
    pub requested_bytes: u64,
    /// Bytes of live blocks.
    pub allocated_bytes: u64,
    /// These, and bytes of freed blocks that are still in use.
    pub active_bytes: u64,
    /// Physical memory held.
    pub reserved_bytes: u64,
}

/// One stream of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Its device's ordinal.
    pub device: u32,
    /// The key that identifies it on its device: its handle, 0 for the default stream.
    pub key: u64,
    /// Its levels when the profile was written; a stream reserves nothing.
    pub now: Levels,
    /// The highest of each.
    pub peak: Levels,
}

/// Where in a program a call was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The frames, innermost first.
    pub frames: Vec<Frame>,
}

/// One function on the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// The function's name; may be empty.
    pub function: String,
    /// The source file, or the shared object if it is unknown; may be empty.
    pub file: String,
    /// The line in it, 0 if unknown.
    pub line: u32,
}

/// The levels of one device in equal intervals from time 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The device's ordinal.
    pub device: u32,
    /// The length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// The highest of each level within each interval.
    pub peaks: Vec<Levels>,
}

/// The counts of the blocks of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeSummary {
    /// The size of the blocks.
    pub block_bytes: u64,
    /// The counts.
    pub counts: Counts,
}

/// The counts of one call site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteSummary {
    /// The index of the site.
    pub site: u32,
    /// The counts.
    pub counts: Counts,
}

/// The counts of some blocks, on all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Allocations served from free blocks of their own stream.
    pub hits: u64,
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Bytes of live blocks when the profile was written.
    pub live_bytes: u64,
    /// The highest sum of live blocks' bytes.
    pub peak_bytes: u64,
    /// The sum of the lifetimes of freed blocks, in nanoseconds.
    pub lifetime_ns: u64,
}

impl Counts {
    /// Adds those of other blocks.
    pub(crate) fn add(&mut self, other: &Self) {
        self.allocations += other.allocations;
        self.frees += other.frees;
        self.hits += other.hits;
        self.requested_bytes += other.requested_bytes;
        self.live_bytes += other.live_bytes;
        self.peak_bytes += other.peak_bytes;
        self.lifetime_ns = self.lifetime_ns.saturating_add(other.lifetime_ns);
    }
}

/// A live block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveBlock {
    /// Its device's ordinal.
    pub device: u32,
    /// Index of its stream.
    pub stream: u32,
    /// Its address.
    pub address: u64,
    /// The size requested.
    pub requested_bytes: u64,
    /// The size of the block.
    pub block_bytes: u64,
    /// The time since its allocation; `None` if that was before the profile.
    pub age_ns: Option<u64>,
    /// The index of the call site of its allocation; 0 if unknown.
    pub site: u32,
    /// The index of its tag in the names.
    pub tag: Option<u32>,
}

/// Contiguous addresses of one stream: a segment, or an area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its device's ordinal.
    pub device: u32,
    /// Index of its stream.
    pub stream: u32,
    /// Where it begins.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// Whether it belongs to a private pool, such as a graph's.
    pub is_private: bool,
    /// PyTorch's two numbers for that pool; for the common pool and where they are not known 0.
    #[serde(default)]
    pub pool_id: (u64, u64),
    /// Whether it is for small blocks (up to 1 MiB).
    pub is_small: bool,
    /// Whether its memory was allocated as a whole: a segment, not an area.
    #[serde(default)]
    pub is_whole: bool,
    /// Its parts in order of address, without holes.
    pub blocks: Vec<Block>,
}

/// A part of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// The size requested, for a live block; for a free one what a part of it was last, or 0.
    pub requested_bytes: u64,
    /// Its state.
    pub state: BlockState,
    /// The index of the call site of its allocation; 0 if unknown or not live.
    pub site: u32,
}

/// The state of a part of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// Live.
    Live,
    /// Freed, but other streams may still use it.
    Pending,
    /// Cached: physical memory for the next request.
    #[default]
    Free,
    /// Live, without memory until it is resumed.
    Paused,
    /// Addresses without memory of their own.
    Unmapped,
}

/// The latest events, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The number of events before them, which are not kept.
    pub dropped_events: u64,
    /// The levels when they begin, a row for each device of `Profile::devices`.
    pub start: Vec<Levels>,
    /// The blocks live when they begin; their ages count back from the first event.
    pub start_live: Vec<LiveBlock>,
    /// The events; JSON has them in the form of `packed.rs`.
    #[serde(with = "crate::packed")]
    pub events: Vec<Event>,
}

/// What happened. The numbers are those of the packed form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A block was allocated: address, requested and block bytes, stream, site.
    #[default]
    Allocate = 1,
    /// The same, and the stream had no free block for it.
    AllocateMiss = 2,
    /// A block was freed: address, requested and block bytes, stream, site of its allocation.
    Free = 3,
    /// The block just freed may still be used by other streams: address, block bytes.
    Pending = 4,
    /// Other streams no longer use it.
    Ready = 5,
    /// Physical memory came from the driver: block bytes; its address if its home is there without
    /// a `Map`, else 0.
    Reserve = 6,
    /// Physical memory was returned to the driver.
    Release = 7,
    /// Memory has its home at an address from now on, that is, blocks may be cut from it there:
    /// block bytes. There are no events for other mappings of the same memory.
    Map = 8,
    /// An address is no longer the home of memory, which was unmapped or moved.
    Unmap = 9,
    /// The cache was emptied or trimmed.
    Trim = 10,
    /// A request of `requested_bytes` failed.
    OutOfMemory = 11,
    /// The memory of a tag was returned to the driver; `name`.
    Pause = 12,
    /// It was restored; `name`.
    Resume = 13,
    /// A range of the program begins; `name`, and its thread in `address`.
    RangePush = 14,
    /// The innermost range of the thread ends; its thread in `address`.
    RangePop = 15,
    /// The program marks a moment; `name`.
    Mark = 16,
    /// Iteration `requested_bytes` of the program has ended.
    Iteration = 17,
}

impl Action {
    /// Every action; the first has number 1.
    const ALL: [Self; 17] = [
        Self::Allocate,
        Self::AllocateMiss,
        Self::Free,
        Self::Pending,
        Self::Ready,
        Self::Reserve,
        Self::Release,
        Self::Map,
        Self::Unmap,
        Self::Trim,
        Self::OutOfMemory,
        Self::Pause,
        Self::Resume,
        Self::RangePush,
        Self::RangePop,
        Self::Mark,
        Self::Iteration,
    ];

    /// The action with this number in the packed form.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Returns true if the event's name is the index of a name.
    pub(crate) fn has_name(self) -> bool {
        matches!(self, Self::Pause | Self::Resume | Self::RangePush | Self::Mark)
    }

    /// Returns true if it is an allocation.
    pub fn is_allocation(self) -> bool {
        matches!(self, Self::Allocate | Self::AllocateMiss)
    }
}

/// One event. Fields that an action does not use are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The time.
    pub time_ns: u64,
    /// What happened.
    pub action: Action,
    /// The device's ordinal.
    pub device: u32,
    /// Index of the stream.
    pub stream: u32,
    /// The address of the block or memory.
    pub address: u64,
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Bytes of the block or memory.
    pub block_bytes: u64,
    /// Index of the call site.
    pub site: u32,
    /// Index of the name. For blocks and memory: 1 + the index of the program's metadata, 0 for
    /// none.
    pub name: u32,
}
