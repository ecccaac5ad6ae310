//! Physical memory from the driver, within the limits of one device.
//!
//! The supply *claims* physical bytes before it asks the driver for them, so that concurrent
//! requests together never exceed the limit, and drops the claim when the driver refuses.
//! `reserved ≤ claimed ≤ allowed` holds at every moment, except right after the limit was
//! lowered.
//!
//! What is claimed is what the driver takes, in whole pages; reserved is what the segments are
//! together. Small segments share pages ([`SharedPages`]), and whether the driver will find room
//! in one or take a new one cannot be known. So a page is claimed before it is asked: a limit is
//! never exceeded, and within a page of it a small segment may be refused for which there was
//! room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Segment;
use super::directory::is_representable;
use super::shared_pages::SharedPages;
use crate::base::Gauge;
use crate::base::size::SizeClass;
use crate::driver::{self, Call, Code, Device, DriverError};
use crate::observe::{Action, DeviceEvents};

/// Why no segment was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It would exceed the limit in force; the driver was not asked.
    Limit,
    /// The driver's answer.
    Driver(DriverError),
    /// The driver's answer to a reservation: there is memory, but no addresses for it.
    AddressSpace(DriverError),
}

/// The segments of one device, counted.
#[derive(Debug)]
pub struct Supply {
    device: Arc<dyn Device>,
    events: DeviceEvents,
    total_bytes: u64,
    allowed_bytes: AtomicU64,
    /// Held, or being asked of the driver right now.
    claimed_bytes: AtomicU64,
    shared: SharedPages,
    all: Meters,
    classes: [Meters; 2],
}

/// What is held, of one size class or of both.
#[derive(Debug, Default)]
struct Meters {
    bytes: Meter,
    segments: Meter,
}

/// A quantity that any thread may change.
#[derive(Debug, Default)]
struct Meter {
    current: AtomicU64,
    peak: AtomicU64,
    total: AtomicU64,
}

impl Meter {
    fn add(&self, amount: u64) {
        self.put_back(amount);
        self.total.fetch_add(amount, Relaxed);
    }

    /// Undoes a [`Self::take`].
    fn put_back(&self, amount: u64) {
        let current = self.current.fetch_add(amount, Relaxed) + amount;
        self.peak.fetch_max(current, Relaxed);
    }

    fn take(&self, amount: u64) {
        self.current.fetch_sub(amount, Relaxed);
    }

    fn reset_peak(&self) {
        self.peak.store(self.current.load(Relaxed), Relaxed);
    }

    fn gauge(&self) -> Gauge {
        Gauge {
            current: self.current.load(Relaxed),
            peak: self.peak.load(Relaxed),
            total: self.total.load(Relaxed),
        }
    }
}

impl Supply {
    /// A supply from `device`, limited to all of its memory, which tells `events`.
    pub fn new(device: Arc<dyn Device>, events: DeviceEvents) -> driver::Result<Self> {
        let total_bytes = device.memory_info()?.total_bytes;
        let shared = SharedPages::new(device.page_bytes());
        Ok(Self {
            device,
            shared,
            events,
            total_bytes,
            allowed_bytes: AtomicU64::new(u64::MAX),
            claimed_bytes: AtomicU64::new(0),
            all: Meters::default(),
            classes: Default::default(),
        })
    }

    /// The device's physical memory, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The most that may be reserved, in bytes; `u64::MAX` when the driver alone decides.
    pub fn allowed_bytes(&self) -> u64 {
        self.allowed_bytes.load(Relaxed)
    }

    /// Changes the most that may be reserved; what is reserved already stays.
    pub fn set_allowed_bytes(&self, bytes: u64) {
        self.allowed_bytes.store(bytes, Relaxed);
    }

    /// Physical bytes held now.
    pub fn reserved_bytes(&self) -> u64 {
        self.all.bytes.current.load(Relaxed)
    }

    /// Physical bytes held: now, at the peak, and all that were ever acquired; for blocks of
    /// `class`, or for all.
    pub fn reserved(&self, class: Option<SizeClass>) -> Gauge {
        self.meters(class).bytes.gauge()
    }

    /// The same, counted in segments.
    pub fn segments(&self, class: Option<SizeClass>) -> Gauge {
        self.meters(class).segments.gauge()
    }

    fn meters(&self, class: Option<SizeClass>) -> &Meters {
        class.map_or(&self.all, |class| &self.classes[class.index()])
    }

    /// Makes each peak what is held now.
    pub fn reset_peak(&self) {
        for meters in self.classes.iter().chain([&self.all]) {
            meters.bytes.reset_peak();
            meters.segments.reset_peak();
        }
    }

    /// How much more may be claimed, in bytes.
    pub fn room_bytes(&self) -> u64 {
        self.allowed_bytes().saturating_sub(self.claimed_bytes.load(Relaxed))
    }

    /// What has to be claimed for a segment of `bytes`.
    pub fn claim_bytes(&self, bytes: u64) -> u64 {
        let held_bytes = self.device.footprint_bytes(bytes);
        match self.shared.page_bytes() {
            0 => held_bytes,
            page_bytes => held_bytes.checked_next_multiple_of(page_bytes).unwrap_or(u64::MAX),
        }
    }

    /// A segment of `bytes` for blocks of `class`.
    pub fn acquire(&self, bytes: u64, class: SizeClass) -> Result<Segment, Refusal> {
        let claimed_bytes = self.claim_bytes(bytes);
        self.claim(claimed_bytes)?;
        match self.allocate_aligned(bytes) {
            Ok(address) => {
                if self.shared.has(bytes) && !self.shared.enter(address) {
                    // The page is claimed already.
                    self.disclaim(claimed_bytes);
                }
                self.count(self.device.footprint_bytes(bytes), class, address);
                Ok(Segment { address, bytes, class })
            }
            Err(error) => {
                self.disclaim(claimed_bytes);
                Err(Refusal::Driver(error))
            }
        }
    }

    /// Gives a segment back to the driver, which waits for all work of the device. On an
    /// error the segment is still held and counted.
    pub fn release(&self, segment: Segment) -> driver::Result<()> {
        let Segment { address, bytes, class } = segment;
        let held_bytes = self.device.footprint_bytes(bytes);
        self.uncount(held_bytes, class, address, || {
            self.device.free(address)?;
            let is_page_shared = self.shared.has(bytes) && !self.shared.leave(address);
            Ok(if is_page_shared { 0 } else { self.claim_bytes(bytes) })
        })
    }

    /// Counts `bytes` at `address` (0: at none) as given back, which `give_back` does; on an
    /// error they are still held.
    pub fn release_with(
        &self,
        bytes: u64,
        class: SizeClass,
        address: u64,
        give_back: impl FnOnce() -> driver::Result<()>,
    ) -> driver::Result<()> {
        self.uncount(bytes, class, address, || give_back().map(|()| bytes))
    }

    /// The same, with `give_back` saying how much need not be claimed any more.
    fn uncount(
        &self,
        bytes: u64,
        class: SizeClass,
        address: u64,
        give_back: impl FnOnce() -> driver::Result<u64>,
    ) -> driver::Result<()> {
        // First, so that bytes which another thread gets at once are not counted twice.
        let both = [&self.all, self.meters(Some(class))];
        for meters in both {
            meters.bytes.take(bytes);
            meters.segments.take(1);
        }
        match give_back() {
            Ok(unclaimed_bytes) => {
                self.disclaim(unclaimed_bytes);
                self.events.note(Action::Release, address, bytes);
                Ok(())
            }
            Err(error) => {
                for meters in both {
                    meters.bytes.put_back(bytes);
                    meters.segments.put_back(1);
                }
                Err(error)
            }
        }
    }

    /// Sets `bytes` of what is allowed aside, before the driver is asked for them.
    pub fn claim(&self, bytes: u64) -> Result<(), Refusal> {
        let allowed_bytes = self.allowed_bytes();
        let grow = |claimed: u64| claimed.checked_add(bytes).filter(|&sum| sum <= allowed_bytes);
        let claimed = self.claimed_bytes.fetch_update(Relaxed, Relaxed, grow);
        claimed.map(drop).map_err(|_| Refusal::Limit)
    }

    /// Gives up a claim to bytes that are not held.
    pub fn disclaim(&self, bytes: u64) {
        self.claimed_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Counts one piece of claimed memory, now held at `address` (0: at none), for blocks of
    /// `class`.
    pub fn count(&self, bytes: u64, class: SizeClass, address: u64) {
        for meters in [&self.all, self.meters(Some(class))] {
            meters.bytes.add(bytes);
            meters.segments.add(1);
        }
        self.events.note(Action::Reserve, address, bytes);
    }

    /// A piece held for blocks of one class is for another from now on.
    pub fn reclassify(&self, bytes: u64, from: SizeClass, to: SizeClass) {
        if from != to {
            let (from, to) = (self.meters(Some(from)), self.meters(Some(to)));
            from.bytes.take(bytes);
            from.segments.take(1);
            to.bytes.put_back(bytes);
            to.segments.put_back(1);
        }
    }

    /// Drivers promise 256-byte alignment and give 512; one that does not is not usable.
    fn allocate_aligned(&self, bytes: u64) -> driver::Result<u64> {
        let address = self.device.allocate(bytes)?;
        if address != 0 && is_representable(address) {
            return Ok(address);
        }
        // The address is useless whether or not the driver takes it back.
        let _ = self.device.free(address);
        Err(DriverError { call: Call::Allocate, code: Code::NOT_SUPPORTED })
    }
}
