//! What is live when a step of the program ends, and how much could be.

use super::state::{DeviceHeap, Heap};
use crate::base::sync::atomic::Ordering::Relaxed;
use crate::base::{DeviceOrdinal, Result};
use crate::observe::{Possible, StepLevels};

/// A device at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The device.
    pub device: DeviceOrdinal,
    /// What is live there, and the most that was.
    pub levels: StepLevels,
}

impl Heap {
    /// The devices in use, at the end of a step. Asks no driver.
    pub fn steps(&self) -> Vec<Step> {
        self.opened_devices().map(DeviceHeap::step).collect()
    }

    /// How much could be live on `device`: what is live now or pending, what is cached, and what the
    /// driver and the limits leave; and of it the part that was live of the most that was held.
    pub fn possible(&self, device: DeviceOrdinal) -> Result<Possible> {
        let device = self.device(device)?;
        let peak_bytes = device.step().levels.peak_bytes;
        let active_bytes: u64 = device.counters().map(|lane| lane.snapshot().all.active).sum();
        let most_bytes = active_bytes.saturating_add(device.memory_info()?.free_bytes);
        let held_bytes = device.ledger.reserved(None).peak.max(peak_bytes).max(1);
        let fewest_bytes = most_bytes as f64 * (peak_bytes as f64 / held_bytes as f64);
        Ok(Possible { most_bytes, fewest_bytes: fewest_bytes as u64 })
    }
}

impl DeviceHeap<'_> {
    fn step(self) -> Step {
        let live_bytes = self.levels().0.all.allocated;
        let peak_bytes = self.live_peak_bytes.load(Relaxed);
        Step { device: self.ordinal, levels: StepLevels { live_bytes, peak_bytes } }
    }
}
