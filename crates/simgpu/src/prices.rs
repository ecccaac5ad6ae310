//! What driver calls were measured to cost: one column for each machine and source.
//!
//! A column has the points that were published, in nanoseconds at a size, not rounded;
//! [`crate::Cost`] defines what lies between and beyond. What a source did not measure is taken
//! from the dearest of the others, and a comment names it. The same holds for how a price grows
//! with size where only pages of 2 MiB were measured. A tail stands only where a source has a
//! high percentile. The columns are for comparing strategies with each other, on several
//! machines; measure and replace them where that is not enough.
//!
//! `h200` and `h200rested` are `docs/benchmarks/nvidia_h200/gpu.md`, the table that `cargo xtask gpu`
//! ended its costs with on an H200 (driver 580, CUDA 13.0): every call was measured there, so they
//! take nothing from the others. The machines of three runs differed by two times; the dearest is
//! here.
//!
//! An H100 of the same driver (`docs/benchmarks/nvidia_h100_80gb_hbm3/gpu.md`) has no column. In a row,
//! what maps memory costs less there than by `h100` (but for `cuMemMap`, 0.57 µs) and `h200`; after a
//! rest more than by `h100`, and no more than by `h200rested` (but for 1 µs of unmapping 16 MiB). In a
//! training on it, in runs by hand, 1,034 calls of the first 20 steps from an empty cache took 18 to
//! 30 ms; by `h100` they are 24.
//!
//! Sources:
//! - `h100`: napplesty/zero-cuda-graph, single calls of 2, 16, 64 and 256 MiB with p99. Setting
//!   access and unmapping cost this much for *each* mapping. `cuMemSetAccess`
//!   returned out-of-memory at about 520,000 live mappings.
//! - `a100`: kvcached's `bench_vmm`, pages of 2 MiB; its p90 of `cuMemCreate` is 339 µs. 8 GB
//!   reserved at once.
//! - `rtxpro6000`: RTX PRO 6000, driver 580: creating 14 µs for 2 to 64 MiB, setting access 66 to
//!   69 µs a mapping, and 4.2 ms for one call over 64: no cheaper than 64 calls.
//! - `vattention`: the paper's table for pages of 2 MiB, on an A100.
//! - `h200`: calls in a row, the medians of the page, with its p99 of pages of 2 MiB.
//! - `h200rested`: the same page, each call after 20 ms in which the host slept. In a program that
//!   launches kernels all the time most calls cost as much; beside a kernel that streams through
//!   memory, with 50,000 mappings, setting access took 136 µs, and unmapping 309.
//! - `b300`: creating at 2, 16, 256 and 1024 MiB; mapping and setting access under 1 µs.
//! - `cuMemAlloc` and `cuMemFree` at 2, 128, 1024 and 4096 MiB: one idle laptop, or the H200 where that
//!   charged more.
//! - Pinned memory, and undoing page-locking: the H200, dearer than what was published (8 GiB in 2.7 s,
//!   0.67 ms for 2 MiB: ai-dynamo/dynamo#13710); the price of the smallest piece, and of freeing it,
//!   is an order of magnitude from NVIDIA's forum.
//! - Page-locking memory of the program's, touched by 32 threads first: 8 GiB in 0.92 s (the same).
//! - Events without timing 0.5 µs to record or query (5 µs with timing; here both cost the same),
//!   `cuMemGetInfo` 5 to 12 µs (once 8 ms): PyTorch's issues on allocator overhead. On the H100 0.2 µs
//!   from one thread, 0.4 to 0.5 from two to eight at once: threads meet at locks of the driver.
//! - Copies between pinned memory and a device: 55 µs for 2 MiB, which is 38 GB/s (in practice
//!   PCIe 4 x16 reaches 25 and PCIe 5 x16 reaches 50); 10 µs for the call and its wait.
//! - `cuMemAllocManaged`: nothing published; as `cuMemAlloc`, the dearest call that allocates.
//!   `cuMemAdvise`: the order of magnitude of a call that goes to the kernel. `cuMemPrefetchAsync`: the
//!   dearer of the H100 and the H200, for the host; what is moved is time of the stream, too
//!   (`calls::managed`).
//! - `cuStreamGetId` and `cuStreamGetCtx` read what the host has, as `cuStreamIsCapturing` does.
//! - Returning addresses, and creating and ending streams, events and captures: orders of
//!   magnitude, nothing published. `cuMemsetD8Async` serves debugging only, and
//!   `cuDeviceCanAccessPeer` is asked once for each pair of devices: both are free.
//!
//! Counter-evidence, in no column: one source set access to 8,192 pages in 50 ms with one call,
//! 6 µs a page. On the H200 each page cost as much as a call of its own, up to 1,024 in one call.
//!
//! 2 GiB made of 2 MiB pieces cost GMLake about 115 × one `cudaMalloc` of 2 GiB. By `h100` it is
//! 1024 × (10 + 0.45 + 77) µs against 469 µs, 191 ×; by `vattention` 151 ×.

mod h200;

use std::str::FromStr;

use crate::call::Call;
use crate::cost::{Cost, CostTable, Points};

/// A column: the measurements that prices come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prices {
    /// H100.
    #[default]
    H100,
    /// A100.
    A100,
    /// RTX PRO 6000.
    RtxPro6000,
    /// vAttention's.
    VAttention,
    /// B300.
    B300,
    /// H200, calls in a row.
    H200,
    /// H200, each call after a rest.
    H200Rested,
}

/// Calls with their prices.
type Column = &'static [(Call, Cost)];

impl Prices {
    /// Every column, in the order in which they are listed to users.
    pub const ALL: &[Self] = &[
        Self::H100,
        Self::A100,
        Self::RtxPro6000,
        Self::VAttention,
        Self::B300,
        Self::H200,
        Self::H200Rested,
    ];

    /// Its name in the environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::H100 => "h100",
            Self::A100 => "a100",
            Self::RtxPro6000 => "rtxpro6000",
            Self::VAttention => "vattention",
            Self::B300 => "b300",
            Self::H200 => "h200",
            Self::H200Rested => "h200rested",
        }
    }

    /// The price of every call.
    pub fn table(self) -> CostTable {
        let own: &[Column] = match self {
            Self::H100 => &[H100],
            Self::A100 => &[A100],
            Self::RtxPro6000 => &[RTX_PRO_6000],
            Self::VAttention => &[VATTENTION],
            Self::B300 => &[B300],
            Self::H200 => &[h200::IN_A_ROW],
            Self::H200Rested => &[h200::IN_A_ROW, h200::RESTED],
        };
        let mut table = CostTable::free_of_charge();
        for &(call, cost) in std::iter::once(&COMMON).chain(own).copied().flatten() {
            table.set(call, cost);
        }
        table
    }
}

impl Default for CostTable {
    fn default() -> Self {
        Prices::default().table()
    }
}

impl FromStr for Prices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|prices| prices.name().eq_ignore_ascii_case(text));
        known.copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|prices| prices.name()).collect();
            format!("not a price list; valid: {}", names.join(", "))
        })
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const fn flat(point: Points) -> Cost {
    Cost::by_size(point)
}

/// The dearest release that was measured: `h100`'s, and `h200`'s from 64 MiB up.
const DEAREST_RELEASE: Points = &[
    (2 * MIB, 36_000),
    (16 * MIB, 39_000),
    (64 * MIB, 49_636),
    (256 * MIB, 158_451),
    (GIB, 625_257),
];

const H100: Column = &[
    (Call::Reserve, flat(&[(0, 1_000)])),
    (
        Call::Create,
        Cost::by_size(&[
            (2 * MIB, 10_000),
            (16 * MIB, 12_000),
            (64 * MIB, 11_000),
            (256 * MIB, 15_000),
        ]),
    ),
    (Call::Map, flat(&[(0, 450)])),
    (
        Call::SetAccess,
        Cost::per_mapping(&[
            (2 * MIB, 77_000),
            (16 * MIB, 77_000),
            (64 * MIB, 77_000),
            (256 * MIB, 98_000),
        ])
        .with_tail(100, 1_000_000),
    ),
    (Call::Unmap, Cost::per_mapping(&[(0, 36_000)]).with_tail(100, 1_850_000)),
    (
        Call::Release,
        Cost::by_size(&[
            (2 * MIB, 36_000),
            (16 * MIB, 39_000),
            (64 * MIB, 49_000),
            (256 * MIB, 91_000),
        ])
        .with_tail(100, 1_200_000),
    ),
];

const A100: Column = &[
    (Call::Reserve, flat(&[(0, 19_000)])),
    // Beyond a page it grows as b300's, the dearest.
    (Call::Create, Cost::by_size(&[(2 * MIB, 193_000), (GIB, 705_000)]).with_tail(10, 339_000)),
    (Call::Map, flat(&[(0, 1_500)])),
    // Beyond a page it grows as h100's.
    (
        Call::SetAccess,
        Cost::per_mapping(&[(2 * MIB, 36_000), (64 * MIB, 36_000), (256 * MIB, 57_000)]),
    ),
    (Call::Unmap, Cost::per_mapping(&[(0, 26_000)])),
    // Not measured: the dearest.
    (Call::Release, Cost::by_size(DEAREST_RELEASE)),
];

const RTX_PRO_6000: Column = &[
    // Not measured: a100's.
    (Call::Reserve, flat(&[(0, 19_000)])),
    (Call::Create, Cost::by_size(&[(2 * MIB, 14_000), (64 * MIB, 14_000)])),
    (Call::Map, flat(&[(0, 1_000)])),
    (Call::SetAccess, Cost::per_mapping(&[(0, 69_000)])),
    (Call::Unmap, Cost::per_mapping(&[(0, 39_000)])),
    // Not measured: the dearest.
    (Call::Release, Cost::by_size(DEAREST_RELEASE)),
];

const VATTENTION: Column = &[
    (Call::Reserve, flat(&[(0, 2_000)])),
    // Beyond a page it grows as b300's, the dearest.
    (Call::Create, Cost::by_size(&[(2 * MIB, 29_000), (GIB, 541_000)])),
    (Call::Map, flat(&[(0, 2_000)])),
    // Beyond a page these two grow as h100's.
    (
        Call::SetAccess,
        Cost::per_mapping(&[(2 * MIB, 38_000), (64 * MIB, 38_000), (256 * MIB, 59_000)]),
    ),
    (
        Call::Release,
        Cost::by_size(&[
            (2 * MIB, 23_000),
            (16 * MIB, 26_000),
            (64 * MIB, 36_000),
            (256 * MIB, 78_000),
        ]),
    ),
    (Call::Unmap, Cost::per_mapping(&[(0, 34_000)])),
];

const B300: Column = &[
    // Not measured: a100's.
    (Call::Reserve, flat(&[(0, 19_000)])),
    (
        Call::Create,
        Cost::by_size(&[
            (2 * MIB, 17_000),
            (16 * MIB, 25_000),
            (256 * MIB, 140_000),
            (GIB, 529_000),
        ]),
    ),
    (Call::Map, flat(&[(0, 1_000)])),
    (Call::SetAccess, Cost::per_mapping(&[(0, 1_000)])),
    // Not measured: rtxpro6000's, and the dearest.
    (Call::Unmap, Cost::per_mapping(&[(0, 39_000)])),
    (Call::Release, Cost::by_size(DEAREST_RELEASE)),
];

/// `cuMemAlloc`.
const ALLOCATE: Points =
    &[(2 * MIB, 223_000), (128 * MIB, 286_000), (GIB, 388_000), (4 * GIB, 1_747_943)];

/// What all columns share: see the sources at the head.
const COMMON: Column = &[
    (Call::MemoryInfo, flat(&[(0, 12_000)])),
    (Call::Allocate, Cost::by_size(ALLOCATE)),
    (Call::AllocateManaged, Cost::by_size(ALLOCATE)),
    (Call::Advise, flat(&[(0, 10_000)])),
    (
        Call::Prefetch,
        Cost::by_size(&[
            (2 * MIB, 10_000),
            (16 * MIB, 79_916),
            (64 * MIB, 274_510),
            (256 * MIB, 938_974),
            (GIB, 5_095_753),
        ]),
    ),
    (
        Call::Free,
        Cost::by_size(&[
            (2 * MIB, 75_000),
            (128 * MIB, 152_000),
            (GIB, 690_329),
            (4 * GIB, 2_912_108),
        ]),
    ),
    (Call::AddressRange, flat(&[(0, 500)])),
    (Call::Unreserve, flat(&[(0, 10_000)])),
    (Call::StreamCreate, flat(&[(0, 20_000)])),
    (Call::StreamDestroy, flat(&[(0, 10_000)])),
    (Call::StreamQuery, flat(&[(0, 500)])),
    (Call::StreamSynchronize, flat(&[(0, 2_000)])),
    (Call::StreamWait, flat(&[(0, 500)])),
    (Call::StreamIsCapturing, flat(&[(0, 100)])),
    (Call::StreamGetId, flat(&[(0, 100)])),
    (Call::StreamGetContext, flat(&[(0, 100)])),
    (Call::BeginCapture, flat(&[(0, 2_000)])),
    (Call::EndCapture, flat(&[(0, 10_000)])),
    (Call::EventCreate, flat(&[(0, 1_500)])),
    (Call::EventDestroy, flat(&[(0, 1_000)])),
    (Call::EventRecord, flat(&[(0, 500)])),
    (Call::EventQuery, flat(&[(0, 500)])),
    (Call::EventSynchronize, flat(&[(0, 1_000)])),
    (Call::Synchronize, flat(&[(0, 5_000)])),
    (
        Call::HostAllocate,
        Cost::by_size(&[
            (4 * KIB, 150_000),
            (2 * MIB, 967_597),
            (32 * MIB, 18_290_041),
            (256 * MIB, 99_607_925),
            (GIB, 539_536_286),
        ]),
    ),
    (
        Call::HostFree,
        Cost::by_size(&[
            (4 * KIB, 100_000),
            (2 * MIB, 386_433),
            (32 * MIB, 5_411_220),
            (256 * MIB, 26_431_273),
            (GIB, 154_093_220),
        ]),
    ),
    (Call::HostRegister, Cost::by_size(&[(4 * KIB, 100_000), (8 * GIB, 920_000_000)])),
    (
        Call::HostUnregister,
        Cost::by_size(&[
            (4 * KIB, 150_000),
            (32 * MIB, 622_215),
            (256 * MIB, 5_370_676),
            (GIB, 21_058_955),
        ]),
    ),
    (Call::CopyToHost, Cost::by_size(&[(0, 10_000), (2 * MIB, 65_000)])),
    (Call::CopyToDevice, Cost::by_size(&[(0, 10_000), (2 * MIB, 65_000)])),
];
