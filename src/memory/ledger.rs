//! The physical memory held of one device: counted, and kept within the limit.
//!
//! Before memory is asked of the driver, its bytes are *charged* here, so that concurrent
//! requests together never exceed the limit. Once held they are counted; if the driver refuses,
//! the charge is refunded.
//!
//! ```text
//! reserved ≤ charged ≤ allowed      at every moment, except right after the limit was lowered
//! charged  = what the driver takes, in whole pages        reserved = Σ bytes of the pieces held
//! ```
//!
//! What is charged is charged to the other processes' knowledge as well, if the device is shared
//! ([`Neighbours`]).

use std::sync::Arc;

use super::neighbours::Neighbours;
use crate::base::Gauge;
use crate::base::size::SizeClass;
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::driver::{self, DriverError};
use crate::observe::{Action, DeviceEvents};

/// Why no memory was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It would exceed the limit, or what other processes leave; the driver was not asked.
    Limit,
    /// The driver's error.
    Driver(DriverError),
    /// The driver's error for a reservation: there is memory, but no addresses for it.
    AddressSpace(DriverError),
}

/// The physical memory of one device: how much exists, may be held, and is held.
#[derive(Debug)]
pub struct Ledger {
    events: DeviceEvents,
    total_bytes: u64,
    allowed_bytes: AtomicU64,
    /// Held, or being asked of the driver now.
    charged_bytes: AtomicU64,
    neighbours: Option<Arc<dyn Neighbours>>,
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

impl Ledger {
    /// The ledger of a device of `total_bytes`, with no limit yet; it reports to `events`.
    pub fn new(
        total_bytes: u64,
        neighbours: Option<Arc<dyn Neighbours>>,
        events: DeviceEvents,
    ) -> Self {
        Self {
            events,
            total_bytes,
            allowed_bytes: AtomicU64::new(u64::MAX),
            charged_bytes: AtomicU64::new(0),
            neighbours,
            all: Meters::default(),
            classes: Default::default(),
        }
    }

    /// The device's physical memory, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The limit on reserved memory, in bytes; `u64::MAX` if only the driver limits it.
    pub fn allowed_bytes(&self) -> u64 {
        self.allowed_bytes.load(Relaxed)
    }

    /// Changes the limit on reserved memory; what is already reserved stays.
    pub fn set_allowed_bytes(&self, bytes: u64) {
        self.allowed_bytes.store(bytes, Relaxed);
        if let Some(neighbours) = self.neighbours() {
            neighbours.set_limit(bytes);
        }
    }

    /// Physical bytes held now.
    pub fn reserved_bytes(&self) -> u64 {
        self.all.bytes.current.load(Relaxed)
    }

    /// Physical bytes held: now, at the peak, and ever acquired; for blocks of `class`, or for
    /// all.
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

    /// Sets each peak to what is held now.
    pub fn reset_peak(&self) {
        for meters in self.classes.iter().chain([&self.all]) {
            meters.bytes.reset_peak();
            meters.segments.reset_peak();
        }
    }

    /// How much more the limit lets be charged, in bytes.
    pub fn room_bytes(&self) -> u64 {
        self.allowed_bytes().saturating_sub(self.charged_bytes.load(Relaxed))
    }

    /// How much more other processes let be charged, in bytes; `u64::MAX` if there are none.
    pub fn shared_room_bytes(&self) -> u64 {
        self.neighbours.as_ref().map_or(u64::MAX, |neighbours| neighbours.room_bytes())
    }

    /// The other processes that share the device.
    pub fn neighbours(&self) -> Option<&dyn Neighbours> {
        self.neighbours.as_deref()
    }

    /// Runs `give_back`, which releases `bytes` at `address` (0: no address) to the driver and
    /// returns how many charged bytes came free; on an error all are still held.
    pub fn release(
        &self,
        bytes: u64,
        class: SizeClass,
        address: u64,
        give_back: impl FnOnce() -> driver::Result<u64>,
    ) -> driver::Result<()> {
        // First, so that bytes that another thread gets at once are not counted twice.
        let both = [&self.all, self.meters(Some(class))];
        for meters in both {
            meters.bytes.take(bytes);
            meters.segments.take(1);
        }
        match give_back() {
            Ok(refunded_bytes) => {
                self.refund(refunded_bytes);
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

    /// Counts `bytes` against the limit and what others leave, before the driver is asked for them.
    pub fn charge(&self, bytes: u64) -> Result<(), Refusal> {
        let allowed_bytes = self.allowed_bytes();
        let grow = |charged: u64| charged.checked_add(bytes).filter(|&sum| sum <= allowed_bytes);
        let charged = self.charged_bytes.fetch_update(Relaxed, Relaxed, grow);
        charged.map_err(|_| Refusal::Limit)?;
        if self.neighbours().is_none_or(|neighbours| neighbours.charge(bytes)) {
            return Ok(());
        }
        self.charged_bytes.fetch_sub(bytes, Relaxed);
        Err(Refusal::Limit)
    }

    /// Undoes the charge of bytes that are not held.
    pub fn refund(&self, bytes: u64) {
        self.charged_bytes.fetch_sub(bytes, Relaxed);
        if let Some(neighbours) = self.neighbours().filter(|_| bytes > 0) {
            neighbours.refund(bytes);
        }
    }

    /// Counts one piece of charged memory that is now held, at `address` (0: no address), for
    /// blocks of `class`.
    pub fn count(&self, bytes: u64, class: SizeClass, address: u64) {
        for meters in [&self.all, self.meters(Some(class))] {
            meters.bytes.add(bytes);
            meters.segments.add(1);
        }
        self.events.note(Action::Reserve, address, bytes);
    }

    /// Moves a piece that is held from one size class to another.
    pub fn reclassify(&self, bytes: u64, from: SizeClass, to: SizeClass) {
        if from != to {
            let (from, to) = (self.meters(Some(from)), self.meters(Some(to)));
            from.bytes.take(bytes);
            from.segments.take(1);
            to.bytes.put_back(bytes);
            to.segments.put_back(1);
        }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
