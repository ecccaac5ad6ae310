//! What each driver call costs, in virtual nanoseconds: the one table.
//!
//! A call costs `base_ns`, plus `per_page_ns` for every 2 MiB page (or part of one) it
//! concerns, plus `per_mapping_ns` for every mapping it concerns. The numbers are published
//! measurements, rounded, on A100- and H100-class machines; where several differ the middle was
//! taken. They are for comparing strategies with each other, not for predicting a machine:
//! measure and replace them with [`CostTable::set`] where that matters.
//!
//! Sources:
//! - `cuMemCreate` 8–190 µs a 2 MiB page, `cuMemMap` 1–2 µs, `cuMemSetAccess` 20–40 µs a
//!   call, `cuMemUnmap` 11–34 µs, `cuMemAddressReserve` 9–19 µs for 8 GB: measurements
//!   published with GMLake, vAttention and PyTorch's expandable segments.
//! - 2 GiB made of 2 MiB pieces costs about 115 × one `cudaMalloc` of 2 GiB (GMLake). With
//!   this table: 1024 × (60 + 1.5) µs + one set-access ≈ 64 ms against 1.1 ms, ≈ 57 ×; with a
//!   set-access for each piece, as measured there, ≈ 85 ×.
//! - `cuMemAlloc` and `cuMemFree` take 0.1 ms and more and synchronise: the reason every
//!   framework caches.
//! - Event record and query 0.5 µs without timing, `cuMemGetInfo` 5–12 µs: PyTorch issues on
//!   allocator overhead.
//! - A copy between pinned memory and a device at 38 GB/s, 55 µs a page, between the 25 GB/s
//!   that PCIe 4 x16 and the 50 GB/s that PCIe 5 x16 come to in practice (of 32 and 64 on
//!   paper); 10 µs for the call and the wait in it.
//! - `cuStreamGetId` and `cuStreamGetCtx` read what the host has, as `cuStreamIsCapturing` does.
//! - `cuMemsetD8Async` serves debugging only: nothing.
//! - `cuDeviceCanAccessPeer` is asked once for each pair of devices: nothing.
//! - Creation of events and streams, pinned memory: orders of magnitude from NVIDIA's forum.

use crate::Call;

/// The page of [`Cost::per_page_ns`], in bytes.
pub const COST_PAGE_BYTES: u64 = 2 << 20;

/// The price of one call, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// For the call itself, also when it fails.
    pub base_ns: u64,
    /// For each 2 MiB page of memory concerned, or part of one; when it succeeds.
    pub per_page_ns: u64,
    /// For each mapping concerned; when it succeeds.
    pub per_mapping_ns: u64,
}

/// The price of every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostTable {
    costs: [Cost; Call::COUNT],
}

impl CostTable {
    /// A table in which every call is free.
    pub const fn free_of_charge() -> Self {
        let nothing = Cost { base_ns: 0, per_page_ns: 0, per_mapping_ns: 0 };
        Self { costs: [nothing; Call::COUNT] }
    }

    /// The price of `call`.
    pub const fn get(&self, call: Call) -> Cost {
        self.costs[call as usize]
    }

    /// Puts another price on `call`.
    pub const fn set(&mut self, call: Call, cost: Cost) {
        self.costs[call as usize] = cost;
    }
}

impl Default for CostTable {
    fn default() -> Self {
        let mut table = Self::free_of_charge();
        for (call, base_ns, per_page_ns, per_mapping_ns) in [
            (Call::MemoryInfo, 8_000, 0, 0),
            (Call::Allocate, 100_000, 1_000, 0),
            (Call::Free, 80_000, 500, 0),
            (Call::AddressRange, 500, 0, 0),
            (Call::Reserve, 10_000, 1, 0),
            (Call::Unreserve, 10_000, 1, 0),
            (Call::Create, 59_000, 1_000, 0),
            (Call::Release, 15_000, 500, 0),
            (Call::Map, 1_500, 0, 0),
            (Call::SetAccess, 25_000, 50, 100),
            (Call::Unmap, 2_000, 50, 18_000),
            (Call::StreamCreate, 20_000, 0, 0),
            (Call::StreamDestroy, 10_000, 0, 0),
            (Call::StreamQuery, 500, 0, 0),
            (Call::StreamSynchronize, 2_000, 0, 0),
            (Call::StreamWait, 500, 0, 0),
            (Call::StreamIsCapturing, 100, 0, 0),
            (Call::StreamGetId, 100, 0, 0),
            (Call::StreamGetContext, 100, 0, 0),
            (Call::BeginCapture, 2_000, 0, 0),
            (Call::EndCapture, 10_000, 0, 0),
            (Call::EventCreate, 1_500, 0, 0),
            (Call::EventDestroy, 1_000, 0, 0),
            (Call::EventRecord, 500, 0, 0),
            (Call::EventQuery, 500, 0, 0),
            (Call::EventSynchronize, 1_000, 0, 0),
            (Call::Synchronize, 5_000, 0, 0),
            (Call::HostAllocate, 150_000, 150_000, 0),
            (Call::HostFree, 100_000, 50_000, 0),
            (Call::CopyToHost, 10_000, 55_000, 0),
            (Call::CopyToDevice, 10_000, 55_000, 0),
        ] {
            table.set(call, Cost { base_ns, per_page_ns, per_mapping_ns });
        }
        table
    }
}
