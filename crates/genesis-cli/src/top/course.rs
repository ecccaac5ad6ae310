//! The readings of one process, one after the other: its rates, and the history of its levels.

use std::collections::VecDeque;

use genesis_profile::model::{Device, Profile};

/// The most readings kept: ten minutes of them.
const MOST_READINGS: usize = 600;
/// Rates are over so many readings: enough to be steady, few enough to be current.
const RATE_READINGS: usize = 3;

/// The readings of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    readings: VecDeque<Profile>,
}

/// What a device did in the last readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// Blocks handed out a second.
    pub(crate) allocations: f64,
    /// Blocks freed a second.
    pub(crate) frees: f64,
    /// The part of the allocations that were hits; `None` if there were no allocations.
    pub(crate) hit_rate: Option<f64>,
}

impl Course {
    /// Takes a reading in; returns true if it is a new one. Readings of an earlier start of the
    /// publisher are dropped.
    pub(crate) fn add(&mut self, reading: Profile) -> bool {
        if let Some(last) = self.readings.back() {
            if last.started_unix_ns != reading.started_unix_ns {
                self.readings.clear();
            } else if last.duration_ns >= reading.duration_ns {
                return false;
            }
        }
        if self.readings.len() == MOST_READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
        true
    }

    /// The last reading.
    pub(crate) fn now(&self) -> Option<&Profile> {
        self.readings.back()
    }

    /// What the device did between the last few readings; `None` before the second.
    pub(crate) fn rates(&self, ordinal: u32) -> Option<Rates> {
        let (last, earlier) = (self.readings.back()?, self.readings.len().checked_sub(2)?);
        let first = &self.readings[earlier.saturating_sub(RATE_READINGS - 2)];
        let seconds = (last.duration_ns - first.duration_ns) as f64 / 1e9;
        let now = device(last, ordinal)?;
        // A device that came into use meanwhile began at 0.
        let unused = Device::default();
        let then = device(first, ordinal).unwrap_or(&unused);
        let count = |of: fn(&Device) -> u64| of(now).saturating_sub(of(then)) as f64;
        let allocations = count(|device| device.allocations);
        Some(Rates {
            allocations: allocations / seconds,
            frees: count(|device| device.frees) / seconds,
            hit_rate: (allocations > 0.0).then(|| count(|device| device.hits) / allocations),
        })
    }

    /// The live bytes of the device in the last `most` readings, in order.
    pub(crate) fn live_bytes(&self, ordinal: u32, most: usize) -> Vec<u64> {
        let skipped = self.readings.len().saturating_sub(most);
        let readings = self.readings.iter().skip(skipped);
        let live = |device: &Device| device.now.allocated_bytes;
        readings.map(|reading| device(reading, ordinal).map_or(0, live)).collect()
    }
}

fn device(reading: &Profile, ordinal: u32) -> Option<&Device> {
    reading.devices.iter().find(|device| device.ordinal == ordinal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(second: u64, allocations: u64, hits: u64) -> Profile {
        let device = Device { ordinal: 1, allocations, hits, ..Device::default() };
        let (started_unix_ns, duration_ns) = (7, second * 1_000_000_000);
        Profile { started_unix_ns, duration_ns, devices: vec![device], ..Profile::default() }
    }

    #[test]
    fn rates_are_of_the_last_readings() {
        let mut course = Course::default();
        assert!(course.add(reading(1, 1000, 0)) && course.rates(1).is_none());
        assert!(!course.add(reading(1, 1000, 0)), "the same again");
        course.add(reading(2, 1000, 0));
        let rates = course.rates(1).unwrap();
        assert_eq!((rates.allocations, rates.hit_rate), (0.0, None));
        course.add(reading(3, 1100, 50));
        course.add(reading(4, 1300, 200));
        let rates = course.rates(1).unwrap();
        assert_eq!((rates.allocations, rates.hit_rate), (150.0, Some(200.0 / 300.0)));
        assert!(course.rates(0).is_none());
        assert_eq!(course.live_bytes(1, 3), [0, 0, 0]);
        // The process was told to stop publishing, and to begin again.
        course.add(Profile { started_unix_ns: 8, ..reading(1, 1400, 0) });
        assert!(course.rates(1).is_none());
    }
}
