//! Profiles of events, compared with figures computed by hand.

use model::{Action as Kept, BlockState, Levels};

use super::*;
use crate::base::DeviceOrdinal;
use crate::observe::{Action, Event};

const MIB: u64 = 1 << 20;

fn stream() -> &'static EventStream {
    Box::leak(Box::new(EventStream::new()))
}

#[derive(Default)]
struct There {
    held: Vec<Held>,
    live: Vec<Event>,
}

impl Beginning for There {
    fn held(&self) -> Vec<Held> {
        self.held.clone()
    }

    fn live(&self) -> Vec<Event> {
        self.live.clone()
    }
}

struct Subject {
    events: &'static EventStream,
    profiler: Profiler,
}

fn keeping(history_events: usize) -> Keeping {
    Keeping { history_events, has_sites: true, ..Keeping::default() }
}

impl Subject {
    fn start(history_events: usize, beginning: &There) -> Self {
        let subject = Self { events: stream(), profiler: Profiler::new() };
        subject.profiler.start(subject.events, keeping(history_events), beginning).unwrap();
        subject
    }

    fn note(&self, action: Action, address: u64, bytes: u64) {
        let (amount, site) = (bytes - bytes.min(100), 1 + (address & 1) as u32);
        let event = Event::new(action, DeviceOrdinal(0));
        self.events.note(Event { address, amount, bytes, site, ..event });
    }

    fn note_plainly(&self, action: Action, address: u64, bytes: u64, site: u32) {
        let event = Event::new(action, DeviceOrdinal(0));
        self.events.note(Event { address, amount: bytes, bytes, site, ..event });
    }

    fn describe(&self) -> model::Profile {
        self.profiler.describe().unwrap()
    }
}

fn levels(requested: u64, allocated: u64, active: u64, reserved: u64) -> Levels {
    Levels {
        requested_bytes: requested,
        allocated_bytes: allocated,
        active_bytes: active,
        reserved_bytes: reserved,
    }
}

#[test]
fn levels_peaks_and_counts() {
    let subject = Subject::start(100, &There::default());
    subject.note(Action::Reserve, 0x10000, 10 * MIB);
    subject.note(Action::Allocate, 0x10000, 4 * MIB);
    subject.note(Action::Allocate, 0x20001, 2 * MIB);
    subject.note(Action::Free, 0x10000, 0);
    subject.note(Action::Pending, 0x10000, 4 * MIB);
    subject.note(Action::Free, 0x10000, 0); // a second time: of nothing
    let profile = subject.describe();
    let device = &profile.devices[0];
    assert_eq!(device.now, levels(2 * MIB - 100, 2 * MIB, 6 * MIB, 10 * MIB));
    assert_eq!(device.peak, levels(6 * MIB - 200, 6 * MIB, 6 * MIB, 10 * MIB));
    assert_eq!((device.allocations, device.frees, device.hits), (2, 1, 2));
    assert_eq!(profile.streams[0].now.active_bytes, 6 * MIB);
    let sizes: Vec<_> =
        profile.sizes.iter().map(|s| (s.block_bytes, s.counts.live_bytes)).collect();
    assert_eq!(sizes, [(2 * MIB, 2 * MIB), (4 * MIB, 0)]);
    assert!(profile.sizes[1].counts.lifetime_ns > 0);
    let sites: Vec<_> = profile.call_sites.iter().map(|s| (s.site, s.counts.peak_bytes)).collect();
    assert_eq!(sites, [(1, 4 * MIB), (2, 2 * MIB)]);
    assert_eq!(profile.live.len(), 1);
    assert_eq!(profile.history.events.len(), 5);
    assert_eq!(profile.history.start, [Levels::default()]);

    subject.note(Action::Ready, 0x10000, 4 * MIB);
    subject.profiler.stop(None).unwrap();
    subject.note(Action::Allocate, 0x30000, MIB);
    let profile = subject.describe();
    assert_eq!(profile.devices[0].now.active_bytes, 2 * MIB);
    let timeline = &profile.timelines[0];
    let highest = timeline.peaks.iter().map(|levels| levels.allocated_bytes).max();
    assert_eq!(highest, Some(6 * MIB));
    assert_eq!(timeline.peaks.last().unwrap().allocated_bytes, 2 * MIB);
    assert_eq!(BlockState::default(), BlockState::Free);
}

/// A block that was freed before the profile is ready: no live block's bytes go with it.
#[test]
fn what_was_pending_before_is_not_subtracted_from_what_is_live() {
    let held = vec![Held { device: 0, reserved_bytes: 8 * MIB, pending_bytes: 4 * MIB }];
    let subject = Subject::start(10, &There { held, live: Vec::new() });
    subject.note(Action::Allocate, 0x10000, MIB);
    subject.note(Action::Ready, 0x900000, 4 * MIB);
    let profile = subject.describe();
    assert_eq!(profile.devices[0].now.active_bytes, MIB);
    assert_eq!(profile.streams[0].now.active_bytes, MIB);
    subject.note(Action::Free, 0x10000, 0);
    assert_eq!(subject.describe().streams[0].now.active_bytes, 0);
}

/// Blocks from before the profile are known, and sums are exact after old events were dropped.
#[test]
fn a_short_history_begins_with_what_was_there() {
    let block = Event::new(Action::Allocate, DeviceOrdinal(0));
    let live = vec![Event { address: 1 << 40, amount: 5, bytes: 512, ..block }];
    let held = vec![Held { device: 0, reserved_bytes: MIB, pending_bytes: 1024 }];
    let subject = Subject::start(1, &There { held, live });
    const BLOCKS: u64 = 100_000;
    for block in 0..BLOCKS {
        subject.note(Action::Allocate, (block + 1) << 10, 512);
        if block >= 3 {
            subject.note(Action::Free, (block - 2) << 10, 0);
        }
    }
    let profile = subject.describe();
    let history = &profile.history;
    let noted = 2 * BLOCKS - 3;
    assert_eq!(history.dropped_events + history.events.len() as u64, noted);
    assert!((1..=2 << 14).contains(&history.events.len()));
    let mut live: std::collections::HashSet<u64> =
        history.start_live.iter().map(|block| block.address).collect();
    let mut allocated = history.start[0].allocated_bytes;
    assert_eq!(allocated, 512 * live.len() as u64);
    for event in &history.events {
        match event.action {
            Kept::Allocate => {
                assert!(live.insert(event.address));
                allocated += event.block_bytes;
            }
            Kept::Free => {
                assert!(live.remove(&event.address));
                allocated -= event.block_bytes;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(live.len(), profile.live.len());
    let device = &profile.devices[0];
    assert_eq!(allocated, device.now.allocated_bytes);
    assert_eq!((live.len(), device.now.reserved_bytes), (4, MIB));
    assert_eq!(device.now.active_bytes, allocated + 1024);
    let old = profile.live.iter().find(|block| block.address == 1 << 40).unwrap();
    assert_eq!((old.age_ns, old.requested_bytes), (None, 5));
}

#[test]
fn profiles_begin_and_end() {
    let subject = Subject::start(10, &There::default());
    let again = subject.profiler.start(subject.events, keeping(10), &There::default());
    assert_eq!(again.unwrap_err().status, Status::InvalidArgument);
    subject.profiler.stop(None).unwrap();
    assert_eq!(subject.profiler.stop(None).unwrap_err().status, Status::InvalidArgument);
    assert!(!subject.events.is_on());
    subject.profiler.start(subject.events, keeping(10), &There::default()).unwrap();
    assert_eq!(subject.describe().devices, []);
    let never = Profiler::new();
    assert_eq!(never.describe().unwrap_err().status, Status::InvalidArgument);
}

/// PyTorch's history: frees and memory have call sites, streams and metadata of their own, also
/// where the caller cannot pass them.
#[test]
fn a_history_of_calls_has_what_holds_for_each_call() {
    let events = stream();
    events.set_site_finder(|| 7);
    let subject = Subject { events, profiler: Profiler::new() };
    let keeping = Keeping { has_own_sites: true, has_free_sites: true, ..keeping(1000) };
    subject.profiler.start(events, keeping, &There::default()).unwrap();
    events.set_metadata("first");
    events.during(0x40, || subject.note_plainly(Action::Reserve, 1 << 20, MIB, 0));
    subject.note_plainly(Action::Allocate, 1 << 20, 512, 3);
    events.set_metadata("");
    subject.note_plainly(Action::Free, 1 << 20, 0, events.free_site());
    subject.note_plainly(Action::Release, 1 << 20, MIB, 0);
    let profile = subject.describe();
    let key = |event: &model::Event| profile.streams[event.stream as usize].key;
    let found: Vec<_> = profile.history.events.iter().map(|e| (e.site, key(e), e.name)).collect();
    let first = profile.names.iter().position(|name| name == "first").unwrap() as u32 + 1;
    assert_eq!(found, [(7, 0x40, first), (3, 0, first), (7, 0, 0), (0, 0x40, 0)]);
    subject.profiler.stop(None).unwrap();
    assert!(!events.seeks_sites() && !events.seeks_free_sites());
}

#[test]
fn what_is_kept_may_change_while_a_history_is_made() {
    let subject = Subject::start(1_000_000, &There::default());
    for block in 1..=100_000 {
        subject.note(Action::Allocate, block << 10, 512);
    }
    assert_eq!(subject.describe().history.events.len(), 100_000);
    subject.profiler.keep(keeping(20_000), false).unwrap();
    let kept = subject.describe().history;
    assert!((20_000..20_000 + 2 * (1 << 14)).contains(&kept.events.len()));
    assert_eq!(kept.events.last().unwrap().address, 100_000 << 10, "the latest");
    let none = Keeping { has_sites: false, ..keeping(20_000) };
    subject.profiler.keep(none, true).unwrap();
    assert!(!subject.events.seeks_sites());
    let cleared = subject.describe();
    assert_eq!((cleared.history.events.len(), cleared.live.len()), (0, 100_000));
    assert_eq!(cleared.history.dropped_events, 100_000);
    subject.profiler.stop(None).unwrap();
    subject.profiler.forget();
    assert_eq!(subject.profiler.describe().unwrap_err().status, Status::InvalidArgument);
    let over = subject.profiler.keep(none, true);
    assert_eq!(over.unwrap_err().status, Status::InvalidArgument);
}
