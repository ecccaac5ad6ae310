//! The profile itself: plain values, as the library has seen them and as JSON keeps them.
//!
//! Bytes are bytes, times are nanoseconds since the profile began. Three quantities are told
//! apart everywhere: *requested* bytes are as asked for, *allocated* bytes are those of the
//! blocks that serve them, *active* bytes are allocated ones and those of freed blocks that
//! other streams may still use. *Reserved* bytes are physical memory held from the driver.
//!
//! The history is bounded: of a long run it has the latest events, and `History::start` says
//! what was there when they begin, so that every sum over them is exact. Everything else is of
//! the whole run.

use serde::{Deserialize, Serialize};

/// What `Profile::format` is.
pub const FORMAT: &str = "genesis profile 1";

/// What was seen of a program's memory.
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
    /// When the profile began: nanoseconds since 1970, UTC.
    pub started_unix_ns: u64,
    /// From there to when it was written.
    pub duration_ns: u64,
    /// The pool type in force.
    pub strategy: String,
    /// The backend in force.
    pub backend: String,
    /// Every device in use.
    pub devices: Vec<Device>,
    /// The streams seen; others refer to them by index.
    pub streams: Vec<Stream>,
    /// Annotations and tags; others refer to them by index.
    pub names: Vec<String>,
    /// Call sites; others refer to them by index. The first is "not known", with no frames.
    pub sites: Vec<Site>,
    /// How levels went over the whole run, a row a device.
    pub timelines: Vec<Timeline>,
    /// What was allocated, by size.
    pub sizes: Vec<SizeSummary>,
    /// What was allocated, by call site; empty where none were taken.
    pub call_sites: Vec<SiteSummary>,
    /// What was live when the profile was written, largest first.
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
    /// The most that may be reserved: a limit or fraction in force, else all of it.
    pub usable_bytes: u64,
    /// Levels when the profile was written.
    pub now: Levels,
    /// The highest that each level has been since the profile began.
    pub peak: Levels,
    /// Blocks handed out since the profile began.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Allocations served from what their own stream had free.
    pub hits: u64,
    /// Allocations that failed for want of memory.
    pub out_of_memory_events: u64,
    /// 1 − largest free run ∕ all that is free; 0 where nothing is.
    pub fragmentation_index: f64,
}

/// The levels of one device, or of one of its streams (which reserve nothing themselves).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    /// Live bytes, as asked for.
    pub requested_bytes: u64,
    /// Live bytes, of blocks.
    pub allocated_bytes: u64,
    /// Those, and freed ones that are still in use.
    pub active_bytes: u64,
    /// Physical memory held.
    pub reserved_bytes: u64,
}

/// One stream of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Its device's ordinal.
    pub device: u32,
    /// What tells it from the device's other streams: its handle, 0 for the default stream.
    pub key: u64,
    /// Its levels when the profile was written; nothing is reserved by a stream.
    pub now: Levels,
    /// The highest that each has been.
    pub peak: Levels,
}

/// Where in a program a call was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// From the call outwards.
    pub frames: Vec<Frame>,
}

/// One function on the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// The function's name; may be empty.
    pub function: String,
    /// The source file, or the shared object where no source is known; may be empty.
    pub file: String,
    /// The line in it, 0 where it is not known.
    pub line: u32,
}

/// How the levels of one device went, in equal intervals from time 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The device's ordinal.
    pub device: u32,
    /// The length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// The highest that each level was within each interval.
    pub peaks: Vec<Levels>,
}

/// What was allocated in blocks of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeSummary {
    /// The size of the blocks.
    pub block_bytes: u64,
    /// What was counted of them.
    pub counts: Counts,
}

/// What was allocated at one call site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteSummary {
    /// Which site.
    pub site: u32,
    /// What was counted there.
    pub counts: Counts,
}

/// What can be counted of some of all blocks, on all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Blocks handed out.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Allocations served from what their own stream had free.
    pub hits: u64,
    /// All bytes asked for.
    pub requested_bytes: u64,
    /// Bytes of live blocks when the profile was written.
    pub live_bytes: u64,
    /// The most bytes of blocks live at a time.
    pub peak_bytes: u64,
    /// The lifetimes of the freed blocks together, in nanoseconds.
    pub lifetime_ns: u64,
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
    /// As asked for.
    pub requested_bytes: u64,
    /// Its extent.
    pub block_bytes: u64,
    /// How long it has lived; `None` if it was there before the profile.
    pub age_ns: Option<u64>,
    /// Where it was allocated: an index, 0 where not known.
    pub site: u32,
    /// Its tag: an index into names.
    pub tag: Option<u32>,
}

/// A run of addresses of one stream, next to each other: a segment of the driver's, or an area.
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
    /// Whether it is of a private pool, of a graph for instance.
    pub is_private: bool,
    /// Whether it holds small blocks (up to a mebibyte).
    pub is_small: bool,
    /// What it consists of, in order of address, without holes.
    pub blocks: Vec<Block>,
}

/// A part of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// As asked for, of a live block.
    pub requested_bytes: u64,
    /// What it is.
    pub state: BlockState,
    /// Where it was allocated: an index, 0 where not known or not live.
    pub site: u32,
}

/// What a part of a segment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// Handed out.
    Live,
    /// Freed, but other streams may still use it.
    Pending,
    /// Cached: physical memory that the next request may have.
    #[default]
    Free,
    /// Handed out, with its memory away until it is resumed.
    Paused,
    /// Addresses with no memory of their own.
    Unmapped,
}

/// The latest events, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// How many events came before them and are not here.
    pub dropped_events: u64,
    /// The levels when they begin, a row a device of `Profile::devices`.
    pub start: Vec<Levels>,
    /// The blocks live when they begin; their ages count back from the first event.
    pub start_live: Vec<LiveBlock>,
    /// The events; in JSON packed, as the page on the packed form in this crate's sources says.
    #[serde(with = "crate::packed")]
    pub events: Vec<Event>,
}

/// What happened. The numbers are those of the packed form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A block was handed out: address, requested and block bytes, stream, site.
    #[default]
    Allocate = 1,
    /// The same, and the stream had nothing free that served it.
    AllocateMiss = 2,
    /// A block was freed: address, requested and block bytes, stream; where it was allocated.
    Free = 3,
    /// The block just freed may still be used by other streams: address, block bytes.
    Pending = 4,
    /// It no longer is.
    Ready = 5,
    /// Physical memory came from the driver: block bytes; the address if it has its home there
    /// without a `Map`, else 0.
    Reserve = 6,
    /// Physical memory went back to it.
    Release = 7,
    /// From now on memory has its home at an address, i.e. blocks may be cut from it there:
    /// block bytes. Further mappings of the same memory are not told of.
    Map = 8,
    /// An address is no longer the home of memory, whether it is unmapped or moved elsewhere.
    Unmap = 9,
    /// The cache was emptied or trimmed.
    Trim = 10,
    /// A request of so many requested bytes failed.
    OutOfMemory = 11,
    /// The memory of a tag was taken away; `name`.
    Pause = 12,
    /// It came back; `name`.
    Resume = 13,
    /// The program says that a range begins; `name`, and its thread in `address`.
    RangePush = 14,
    /// The innermost range of the thread ends; its thread in `address`.
    RangePop = 15,
    /// The program marks a moment; `name`.
    Mark = 16,
    /// The program says that iteration `requested_bytes` has ended.
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

    /// The action of a number of the packed form.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Whether a block is handed out.
    pub fn is_allocation(self) -> bool {
        matches!(self, Self::Allocate | Self::AllocateMiss)
    }
}

/// One event. What an action has no use for is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub time_ns: u64,
    /// What.
    pub action: Action,
    /// The device's ordinal.
    pub device: u32,
    /// Index of the stream.
    pub stream: u32,
    /// The address it is about.
    pub address: u64,
    /// Bytes as asked for.
    pub requested_bytes: u64,
    /// Bytes of the block, or of what came, went or was mapped.
    pub block_bytes: u64,
    /// Index of the call site.
    pub site: u32,
    /// Index of the name.
    pub name: u32,
}
