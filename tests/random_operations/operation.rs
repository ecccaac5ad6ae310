//! What a program can do, one operation at a time, and the drawing of random ones.
//!
//! An operation names blocks by a number, taken modulo the number of live ones, and streams by
//! their place in [`super::worker::STREAMS`]. So any list of operations is a program: what cannot
//! be done is passed over. That is what lets a failing list be made shorter (`list.rs`).

use genesis::base::size::{KIB, MIB};
use serde::{Deserialize, Serialize};
use simgpu::Call;

use crate::support::Random;
use crate::{CAPACITY_BYTES, DEVICES};

/// Sizes that come again and again, as they do in programs.
const COMMON_BYTES: [u64; 6] = [512, 4 * KIB, 100_000, MIB, 3 * MIB, 12 * MIB];
/// Streams of each device. The first four are every worker's, the last [`OWN_STREAMS`] its own.
pub const STREAMS: u64 = 6;
/// Streams of a worker's own, which end and come again.
pub const OWN_STREAMS: u64 = 2;

/// One operation. Sizes are in bytes, devices ordinals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    /// Frees `which` instead if as many blocks are live as may be: half as many if `sparing`.
    Allocate {
        device: u32,
        stream: u64,
        bytes: u64,
        way: Way,
        #[serde(default)]
        sparing: bool,
        #[serde(default)]
        which: u64,
    },
    Free {
        which: u64,
        #[serde(default)]
        directly: bool,
    },
    /// Another stream reads the block.
    Read {
        which: u64,
        stream: u64,
    },
    /// A stream of another device reads the block.
    ReadAcross {
        which: u64,
        device: u32,
        stream: u64,
    },
    /// The block's own stream uses it again.
    Touch {
        which: u64,
    },
    /// Completes so many operations of a stream; `None`: all.
    Advance {
        device: u32,
        stream: u64,
        count: Option<u64>,
    },
    /// Has the second stream wait for the first.
    Order {
        device: u32,
        first: u64,
        second: u64,
    },
    /// Destroys a stream of the worker's own and makes another.
    RenewStream {
        device: u32,
        stream: u64,
        told: bool,
    },
    /// Frees what is no live block.
    Misuse,
    EnablePeer {
        device: u32,
        peer: u32,
    },
    BeginCapture {
        device: u32,
        stream: u64,
        told: bool,
        mode: Mode,
    },
    EndCapture {
        device: u32,
    },
    Launch {
        device: u32,
    },
    DropGraph {
        device: u32,
    },
    PauseTag {
        kept: Kept,
        version: Option<u64>,
    },
    ResumeTag,
    PauseBlock {
        which: u64,
    },
    ResumeBlock,
    LimitTag {
        everybodys: bool,
        bytes: Option<u64>,
    },
    LimitPool {
        device: u32,
        bytes: Option<u64>,
    },
    /// Sets an option while the program runs.
    Set {
        option: String,
        value: String,
    },
    GiveBack {
        device: u32,
        how: GiveBack,
    },
    Preallocate {
        device: u32,
        stream: u64,
        bytes: u64,
    },
    /// From the worker's arena of the device, or, without `bytes`, a block of its pool.
    TakePart {
        device: u32,
        stream: u64,
        bytes: Option<u64>,
    },
    /// A stream reads a part of the arena.
    ReadPart {
        which: u64,
        device: u32,
        stream: u64,
    },
    /// Frees a block of the pool.
    FreePart {
        which: u64,
        device: u32,
    },
    ResetArena {
        device: u32,
        how: Reset,
    },
    /// Pinned host memory.
    TakePinned {
        bytes: u64,
    },
    /// A stream of device 0 copies from a block of pinned memory.
    CopyPinned {
        which: u64,
        stream: u64,
    },
    FreePinned {
        which: u64,
    },
    TrimPinned,
    /// From the `nth` such call on, one call or all of them fail.
    Fault {
        call: String,
        nth: u64,
        forever: bool,
        code: i32,
    },
    /// The driver is well again.
    Mend,
    /// Other processes take all of the device but so much; `None`: they give it back.
    Squeeze {
        device: u32,
        bytes: Option<u64>,
    },
}

/// How a block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    Plain,
    Tagged,
    TaggedTwice,
    /// With its memory to itself.
    Alone,
    /// From the worker's pool, as for a capture.
    Pooled,
    /// From a pool of the worker's that is begun for requests, and lends.
    Lending,
    /// From a pool of the worker's for NCCL and RDMA.
    Communicating,
}

/// The mode of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

/// What is kept of paused memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    AsAllocated,
    None,
    Pageable,
    Pinned,
    Disk,
}

/// How memory goes back to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GiveBack {
    EmptyCache,
    Compact,
    Collect,
    Trim(u64),
}

/// What becomes of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reset {
    /// All is freed.
    All,
    /// Its position is remembered.
    Mark,
    /// What was handed out after that is freed.
    ToMark,
    /// What it does not need goes back to the heap.
    Trim,
}

/// What else an operation may be drawn of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Driver calls fail, and memory is taken by others.
    pub faults: bool,
    /// Memory asked for alone or for NCCL, peers: what only Elastic has.
    pub is_elastic: bool,
}

/// The driver calls that fail, and the codes with which they do.
const FAULTY: [Call; 23] = [
    Call::MemoryInfo,
    Call::Allocate,
    Call::Free,
    Call::Reserve,
    Call::Unreserve,
    Call::Create,
    Call::Release,
    Call::Map,
    Call::SetAccess,
    Call::Unmap,
    Call::EventCreate,
    Call::EventRecord,
    Call::EventQuery,
    Call::StreamQuery,
    Call::StreamWait,
    Call::StreamIsCapturing,
    Call::StreamGetId,
    Call::StreamGetContext,
    Call::Synchronize,
    Call::CopyToHost,
    Call::CopyToDevice,
    Call::HostAllocate,
    Call::HostFree,
];
const CODES: [i32; 3] = [2, 4, 12_345];

/// Options that change while a program runs, with values.
const RUNTIME_OPTIONS: [(&str, [&str; 3]); 8] = [
    ("GENESIS_GC_THRESHOLD", ["", "0.8", "0.3"]),
    ("GENESIS_GC_AGE_ALLOCATIONS", ["", "2000", "20"]),
    ("GENESIS_GC_AGE_SECONDS", ["", "0.01", "0"]),
    ("GENESIS_CACHE_SIZE", ["", "64MiB", "8MiB"]),
    ("GENESIS_MEMORY_LIMIT", ["", "200MiB", "100MiB"]),
    ("GENESIS_MEMORY_FRACTION", ["", "0.75", "0.4"]),
    ("GENESIS_DEBUG", ["", "poison", "quarantine"]),
    ("GENESIS_QUARANTINE_SIZE", ["", "8MiB", "0"]),
];

/// Options that are in force from the start, with values.
pub const START_OPTIONS: [(&str, [&str; 2]); 9] = [
    ("GENESIS_ELASTIC_POLICY", ["balanced", "tight"]),
    ("GENESIS_SINGLE_HANDLE_SIZE", ["", "8MiB"]),
    ("GENESIS_MAX_SPLIT_SIZE", ["", "32MiB"]),
    ("GENESIS_ROUNDUP_POWER2_DIVISIONS", ["", "4"]),
    ("GENESIS_MEMORY_LIMIT", ["", "200MiB"]),
    ("GENESIS_CACHE_SIZE", ["", "64MiB"]),
    ("GENESIS_STREAM_IDS", ["auto", "off"]),
    ("GENESIS_GC_THRESHOLD", ["", "0.8"]),
    ("GENESIS_GC_AGE_ALLOCATIONS", ["", "2000"]),
];

impl Operation {
    /// A random one.
    pub fn draw(random: &mut Random, extent: Extent) -> Self {
        let which = random.below(1 << 20);
        let (device, stream) = (random.below(DEVICES as u64) as u32, random.below(STREAMS));
        let own_stream = STREAMS - OWN_STREAMS + random.below(OWN_STREAMS);
        match random.below(1120) {
            0..400 => {
                let way = draw_way(random, extent);
                let sparing = random.below(8) == 0;
                Self::Allocate { device, stream, bytes: draw_bytes(random), way, sparing, which }
            }
            400..740 => Self::Free { which, directly: random.below(50) == 0 },
            740..820 => Self::Read { which, stream },
            820..880 => Self::Touch { which },
            880..960 => Self::Advance { device, stream, count: (random.below(4) > 0).then_some(8) },
            960..982 => Self::Order { device, first: stream, second: random.below(STREAMS) },
            982..985 => Self::RenewStream { device, stream: own_stream, told: random.below(2) > 0 },
            985..992 => Self::Misuse,
            992..994 => Self::PauseTag { kept: draw_kept(random), version: draw_version(random) },
            994 => Self::PauseBlock { which },
            995 => Self::ResumeTag,
            996 => Self::ResumeBlock,
            997 => {
                let bytes = (random.below(2) == 0).then(|| random.below(128 * MIB));
                let everybodys = random.below(2) == 0;
                Self::LimitTag { everybodys, bytes }
            }
            998 => {
                let bytes = (random.below(2) == 0).then(|| random.below(16 * MIB));
                Self::LimitPool { device, bytes }
            }
            999 => draw_option(random),
            1000..1004 => Self::GiveBack { device, how: draw_give_back(random) },
            1004 => Self::Preallocate { device, stream, bytes: random.below(32 * MIB) },
            1005 => Self::BeginCapture {
                device,
                stream: if random.below(2) == 0 { own_stream } else { stream },
                told: random.below(2) == 0,
                mode: [Mode::Global, Mode::ThreadLocal, Mode::Relaxed][random.below(3) as usize],
            },
            1006..1010 => Self::EndCapture { device },
            1010..1013 => Self::Launch { device },
            1013 => Self::DropGraph { device },
            1014..1016 if extent.is_elastic => {
                Self::EnablePeer { device, peer: random.below(DEVICES as u64) as u32 }
            }
            1016..1020 if extent.is_elastic => {
                Self::ReadAcross { which, device, stream: own_stream }
            }
            1020..1022 if extent.faults => draw_fault(random),
            1022 if extent.faults => Self::Mend,
            1023 if extent.faults => {
                let bytes = (random.below(2) == 0).then(|| random.below(CAPACITY_BYTES));
                Self::Squeeze { device, bytes }
            }
            1024..1056 => {
                let bytes = (random.below(2) == 0).then(|| draw_part_bytes(random));
                Self::TakePart { device, stream, bytes }
            }
            1056..1066 => Self::ReadPart { which, device, stream },
            1066..1080 => Self::FreePart { which, device },
            1080..1088 => {
                let how = [Reset::All, Reset::Mark, Reset::ToMark, Reset::Trim];
                Self::ResetArena { device, how: how[random.below(how.len() as u64) as usize] }
            }
            1088..1100 => Self::TakePinned { bytes: 1 + draw_part_bytes(random) },
            1100..1108 => Self::CopyPinned { which, stream },
            1108..1119 => Self::FreePinned { which },
            1119 => Self::TrimPinned,
            _ => Self::Touch { which },
        }
    }
}

fn draw_way(random: &mut Random, extent: Extent) -> Way {
    match random.below(64) {
        0..8 => Way::Tagged,
        8..16 => Way::TaggedTwice,
        16 if extent.is_elastic => Way::Alone,
        17 => Way::Pooled,
        18..20 => Way::Lending,
        20 if extent.is_elastic => Way::Communicating,
        _ => Way::Plain,
    }
}

/// Often one of a few, mostly small, some large, now and then none or more than there is.
fn draw_bytes(random: &mut Random) -> u64 {
    match random.below(1000) {
        0..10 => 0,
        10..400 => COMMON_BYTES[random.below(COMMON_BYTES.len() as u64) as usize],
        400..600 => 1 + random.below(64 * KIB),
        600..850 => 1 + random.below(MIB),
        850..990 => 1 + random.below(12 * MIB),
        990..997 => 1 + random.below(100 * MIB),
        997..999 => 1 + random.below(CAPACITY_BYTES + 16 * MIB),
        _ => u64::MAX - random.below(1 << 47),
    }
}

/// Mostly much less than a chunk of an arena, now and then more than one.
fn draw_part_bytes(random: &mut Random) -> u64 {
    match random.below(16) {
        0 => random.below(2 * MIB),
        1..6 => random.below(128 * KIB),
        _ => random.below(8 * KIB),
    }
}

fn draw_kept(random: &mut Random) -> Kept {
    match random.below(16) {
        0 => Kept::Disk,
        1..5 => Kept::Pinned,
        5..9 => Kept::Pageable,
        9..13 => Kept::None,
        _ => Kept::AsAllocated,
    }
}

fn draw_version(random: &mut Random) -> Option<u64> {
    (random.below(4) == 0).then(|| 1 + random.below(2))
}

fn draw_option(random: &mut Random) -> Operation {
    let (option, values) = RUNTIME_OPTIONS[random.below(RUNTIME_OPTIONS.len() as u64) as usize];
    let value = values[random.below(values.len() as u64) as usize];
    Operation::Set { option: option.to_owned(), value: value.to_owned() }
}

fn draw_give_back(random: &mut Random) -> GiveBack {
    match random.below(8) {
        0 => GiveBack::EmptyCache,
        1 => GiveBack::Compact,
        2 => GiveBack::Collect,
        _ => GiveBack::Trim(random.below(CAPACITY_BYTES)),
    }
}

fn draw_fault(random: &mut Random) -> Operation {
    let call = FAULTY[random.below(FAULTY.len() as u64) as usize].name().to_owned();
    let code = CODES[random.below(CODES.len() as u64) as usize];
    Operation::Fault { call, nth: 1 + random.below(12), forever: random.below(4) == 0, code }
}
