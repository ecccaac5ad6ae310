//! Peaks under drawn schedules: two threads, each with a lane of its own.

use std::sync::Arc;

use super::*;
use crate::base::sync::schedules;
use crate::observe::Combined;

const CLASS: SizeClass = SizeClass::Small;
const NOTHING: Outside = Outside { inactive_limit_bytes: u64::MAX, inactive_bytes: 0 };

/// Two lanes and their peaks, used as the heap does.
#[derive(Debug, Default)]
struct Device {
    lanes: [LaneCounters; 2],
    peaks: Combined<Peaks>,
}

impl Device {
    fn allocate(&self, lane: usize, bytes: u64) {
        self.settle(self.lanes[lane].on_allocate(CLASS, bytes, bytes));
    }

    fn free(&self, lane: usize, bytes: u64) {
        self.settle(self.lanes[lane].on_free(CLASS, bytes, bytes));
    }

    fn settle(&self, watermark: Watermark) {
        if watermark == Watermark::Crossed {
            self.peaks.work(|mut peaks, turn| {
                peaks.refresh(self.lanes.iter(), NOTHING, turn);
            });
        }
    }

    fn refresh(&self) -> Snapshot {
        let levels = {
            let mut peaks = self.peaks.lock();
            peaks.refresh(self.lanes.iter(), NOTHING, Turn::Alone);
            peaks.levels()
        };
        if self.peaks.is_wanted() {
            self.settle(Watermark::Crossed);
        }
        levels
    }
}

/// A device with a peak of 1000 bytes, of which nothing is live, and of so many blocks that it is bytes
/// that cross a watermark.
fn with_peak() -> Arc<Device> {
    let device = Arc::new(Device::default());
    device.lanes.iter().for_each(|lane| lane.set_held_bytes(10_000));
    // In few steps, so that more of the schedules differ in those that count.
    for _ in 0..100 {
        let _ = device.lanes[0].on_allocate(CLASS, 10, 10);
    }
    device.refresh();
    for _ in 0..100 {
        let _ = device.lanes[0].on_free(CLASS, 10, 10);
    }
    device.refresh();
    device
}

/// Two operations at the same moment count in some order. What comes after both, one operation
/// after another, is exact.
#[test]
fn peaks_are_exact_once_threads_take_turns_again() {
    schedules::explore(|seed| {
        let device = with_peak();
        // Within the first lane's share of the room, which is half of it, and beyond the second's.
        let (first, second) = (300 + seed % 200, 501 + seed % 97);
        let other = {
            let device = Arc::clone(&device);
            shuttle::thread::spawn(move || device.allocate(0, first))
        };
        device.allocate(1, second);
        other.join().unwrap();
        let mut highest = 1000.max(first + second);
        for _ in 0..40 {
            device.allocate(1, 4);
            highest = highest.max(device.lanes.iter().map(|lane| lane.live_bytes(CLASS)).sum());
        }
        device.free(0, first);
        assert_eq!(device.refresh().all.allocated, highest);
    });
}

/// A lane that looks at its ceilings while another's refresh lowers them does not go on by the old
/// ones.
#[test]
fn a_share_ends_with_the_ceilings_that_it_is_below() {
    schedules::explore(|seed| {
        let device = with_peak();
        let (few, most) = (1 + seed % 8, 800 + seed % 190);
        let other = {
            let device = Arc::clone(&device);
            shuttle::thread::spawn(move || device.allocate(1, most))
        };
        device.allocate(0, few);
        other.join().unwrap();
        (0..10).for_each(|_| device.allocate(0, 24));
        device.free(1, most);
        assert_eq!(device.refresh().all.allocated, 1000.max(few + most + 240));
    });
}
