//! Tests of the counters' peaks and watermarks.

use std::cell::Cell;

use super::*;

/// Neither a limit, nor memory outside of lanes.
const NOTHING: Outside = Outside { inactive_limit_bytes: u64::MAX, inactive_bytes: 0 };

/// A lone lane whose peaks are refreshed whenever it crosses a watermark.
#[derive(Default)]
struct Lone {
    lane: LaneCounters,
    peaks: Peaks,
    crossings: u32,
}

impl Lone {
    fn new() -> Self {
        let lone = Self::default();
        lone.lane.set_held_bytes(1 << 30);
        lone
    }

    fn look(&mut self, watermark: Watermark) {
        if watermark == Watermark::Crossed {
            self.peaks.refresh([&self.lane].into_iter(), NOTHING, Turn::Alone);
            self.crossings += 1;
        }
    }

    fn allocate(&mut self, class: SizeClass) {
        let watermark = self.lane.on_allocate(class, 500, 512);
        self.look(watermark);
    }

    fn free(&mut self, class: SizeClass) {
        let watermark = self.lane.on_free(class, 500, 512);
        self.look(watermark);
    }
}

/// A block that comes and goes at the peak is within the watermarks of a lone lane.
#[test]
fn going_up_to_the_peak_again_is_no_crossing() {
    let mut lone = Lone::new();
    for _ in 0..10 {
        lone.allocate(SizeClass::Small);
        lone.free(SizeClass::Small);
    }
    assert_eq!(lone.crossings, 2, "the first time up, and the first time down");
}

/// A lane whose blocks all become free again and again, each after a time in which it is pending.
#[test]
fn going_down_to_the_trough_again_is_no_crossing() {
    let (mut lone, class) = (Lone::new(), SizeClass::Small);
    for _ in 0..10 {
        lone.allocate(class);
        // The heap does not look here: the block is still in use.
        let _ = lone.lane.on_free(class, 500, 512);
        for watermark in [lone.lane.on_pending(class, 512), lone.lane.on_ready(class, 512)] {
            lone.look(watermark);
        }
    }
    assert_eq!(lone.crossings, 2, "the first time up, and the first time down");
}

/// Blocks that become pending one after another are active together, though one at a time is live.
#[test]
fn what_is_pending_is_not_had_live_again() {
    let (mut lone, class) = (Lone::new(), SizeClass::Large);
    (0..10).for_each(|_| lone.allocate(class));
    (0..10).for_each(|_| lone.free(class));
    for count in 1..=20 {
        lone.allocate(class);
        assert_eq!(lone.peaks.levels().all.active_blocks, count.max(10));
        let _ = lone.lane.on_free(class, 500, 512);
        let watermark = lone.lane.on_pending(class, 512);
        lone.look(watermark);
    }
}

/// A cycle of the program that goes no higher than one before it compares nothing.
#[test]
fn what_was_shared_out_does_for_the_next_cycle() {
    let (mut lone, class) = (Lone::new(), SizeClass::Large);
    let mut cycle = |height| {
        (0..height).for_each(|_| lone.allocate(class));
        let shares = format!("{:?}", lone.lane.shares);
        (0..height).for_each(|_| lone.free(class));
        shares
    };
    let _ = cycle(100);
    let shares = cycle(90);
    assert_eq!([cycle(90), cycle(80)], [shares.clone(), shares]);
}

/// Nor does one whose blocks are pending for a while before they are free.
#[test]
fn what_was_shared_out_does_for_blocks_that_were_pending() {
    let (mut lone, class) = (Lone::new(), SizeClass::Large);
    let mut cycle = |height| {
        (0..height).for_each(|_| lone.allocate(class));
        let shares = format!("{:?}", lone.lane.shares);
        for _ in 0..height {
            let _ = lone.lane.on_free(class, 500, 512);
            let watermark = lone.lane.on_pending(class, 512);
            lone.look(watermark);
        }
        for _ in 0..height {
            let watermark = lone.lane.on_ready(class, 512);
            lone.look(watermark);
        }
        shares
    };
    let _ = cycle(100);
    let shares = cycle(90);
    assert_eq!([cycle(90), cycle(80)], [shares.clone(), shares]);
}

/// Small blocks are those of up to 600 bytes here.
fn class(bytes: u64) -> SizeClass {
    if bytes > 600 { SizeClass::Large } else { SizeClass::Small }
}

/// Three lanes in turn, against peaks computed after each operation from the plain sums.
#[test]
fn peaks_of_sums_are_exact() {
    let lanes = [LaneCounters::new(), LaneCounters::new(), LaneCounters::new()];
    let mut peaks = Peaks::default();
    let mut live: [Vec<u64>; 3] = Default::default();
    let mut pending: [Vec<u64>; 3] = Default::default();
    let mut refreshes = 0;
    let mut random = 12345u64;
    for lane in &lanes {
        lane.set_held_bytes(1 << 20);
    }
    let mut expected = peaks.refresh(lanes.iter(), NOTHING, Turn::Alone);
    for _ in 0..20_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let which = (random >> 33) as usize % 3;
        let watermark = if (random >> 40) % 100 < 52 && live[which].len() < 500 {
            let bytes = (random >> 50) % 1000 + 1;
            live[which].push(bytes);
            lanes[which].on_allocate(class(bytes), bytes, bytes * 2)
        } else if (random >> 40) % 100 < 60 && !pending[which].is_empty() {
            let bytes = pending[which].remove(0);
            lanes[which].on_ready(class(bytes), bytes * 2)
        } else if let Some(bytes) = live[which].pop() {
            let freed = lanes[which].on_free(class(bytes), bytes, bytes * 2);
            if (random >> 50).is_multiple_of(8) {
                pending[which].push(bytes);
                lanes[which].on_pending(class(bytes), bytes * 2)
            } else {
                freed
            }
        } else {
            continue;
        };
        let sums: Snapshot = lanes.iter().map(LaneCounters::snapshot).sum();
        expected = expected.zip(sums, u64::max);
        if watermark == Watermark::Crossed {
            peaks.refresh(lanes.iter(), NOTHING, Turn::Alone);
            refreshes += 1;
        }
        assert_eq!(peaks.levels(), expected);
    }
    assert!(refreshes < 10_000, "{refreshes} refreshes: the watermarks save nothing");
    peaks.forget();
    peaks.refresh(lanes.iter(), NOTHING, Turn::Alone);
    assert_eq!(peaks.levels(), lanes.iter().map(LaneCounters::snapshot).sum());
}

/// One class uses up its share again and again, while the other still has one from before.
#[test]
fn both_classes_together_stay_below_the_peak() {
    let mut lone = Lone::new();
    for class in SizeClass::ALL {
        (0..1000).for_each(|_| lone.allocate(class));
        (0..1000).for_each(|_| lone.free(class));
    }
    for (class, blocks) in
        [(SizeClass::Small, 20), (SizeClass::Large, 900), (SizeClass::Small, 400)]
    {
        for _ in 0..blocks {
            lone.allocate(class);
            let (live, peak) = (lone.lane.snapshot().all, lone.peaks.levels().all);
            assert!(live.allocated <= peak.allocated, "{live:?} above {peak:?}");
        }
    }
}

/// A block that was pending makes room below the peak of active bytes, not of live ones.
#[test]
fn a_block_that_becomes_ready_does_not_raise_the_ceiling_of_live_blocks() {
    let lane = LaneCounters::new();
    let mut peaks = Peaks::default();
    let class = SizeClass::Large;
    lane.set_held_bytes(8 * 512);
    let allocate = || lane.on_allocate(class, 500, 512);
    let free = || lane.on_free(class, 500, 512);
    for _ in 0..4 {
        let _ = allocate();
    }
    let _ = free();
    let _ = lane.on_pending(class, 512);
    let _ = allocate();
    peaks.refresh([&lane].into_iter(), NOTHING, Turn::Alone);
    assert_eq!((peaks.levels().all.blocks, peaks.levels().all.active_blocks), (4, 5));
    for _ in 0..2 {
        let _ = free();
    }
    peaks.refresh([&lane].into_iter(), NOTHING, Turn::Alone);
    let _ = lane.on_ready(class, 512);
    // Few bytes are requested, so that only the blocks pass their peak.
    let allocate = || lane.on_allocate(class, 1, 512);
    for _ in 0..2 {
        assert_eq!(allocate(), Watermark::Within);
    }
    assert_eq!(allocate(), Watermark::Crossed, "five are live");
}

/// Streams that have given all their memory back take no room from the others.
#[test]
fn a_lane_without_memory_gets_no_share() {
    let lanes = [LaneCounters::new(), LaneCounters::new(), LaneCounters::new()];
    let mut peaks = Peaks::default();
    let is_within = || lanes[1].on_allocate(SizeClass::Small, 512, 512) == Watermark::Within;
    let free = |count| {
        for _ in 0..count {
            let _ = lanes[1].on_free(SizeClass::Small, 512, 512);
        }
    };
    lanes[1].set_held_bytes(64 * 512);
    let mut room = || {
        peaks.refresh(lanes.iter(), NOTHING, Turn::Alone);
        let within = (0..64).take_while(|_| is_within()).count();
        free(within + 1);
        within
    };
    assert_eq!(
        (0..12).filter(|_| is_within()).count(),
        0,
        "there is no room before the first sums"
    );
    assert_eq!(room(), 0, "this is the peak");
    free(12);
    assert_eq!(room(), 12, "all that was live before");
    lanes[0].set_held_bytes(512);
    assert_eq!(room(), 6, "half of it");
    lanes[0].set_held_bytes(0);
    assert_eq!(room(), 12);
}

/// Room for fewer blocks than there are lanes is not lost.
#[test]
fn the_lane_that_crosses_gets_what_the_division_leaves() {
    let lanes = [LaneCounters::new(), LaneCounters::new(), LaneCounters::new()];
    let mut peaks = Peaks::default();
    let allocate = |lane: &LaneCounters| lane.on_allocate(SizeClass::Large, 1, 1);
    for lane in &lanes {
        lane.set_held_bytes(4);
        (0..2).for_each(|_| assert_eq!(allocate(lane), Watermark::Crossed));
    }
    peaks.refresh(lanes.iter(), NOTHING, Turn::Alone);
    for _ in 0..2 {
        assert_eq!(lanes[1].on_free(SizeClass::Large, 1, 1), Watermark::Crossed);
        peaks.refresh(lanes.iter(), NOTHING, Turn::Alone);
    }
    for _ in 0..2 {
        assert_eq!(allocate(&lanes[1]), Watermark::Within);
    }
    assert_eq!(allocate(&lanes[1]), Watermark::Crossed, "the peak is passed");
}

/// Operations of a lane while the watermarks are set count against its share.
#[test]
fn operations_during_a_refresh_do_not_make_room() {
    let lanes = [LaneCounters::new(), LaneCounters::new()];
    let mut peaks = Peaks::default();
    let allocate = |lane: &LaneCounters| lane.on_allocate(SizeClass::Small, 512, 512);
    for lane in &lanes {
        lane.set_held_bytes(64 * 512);
    }
    for _ in 0..10 {
        let _ = allocate(&lanes[0]);
    }
    peaks.refresh(lanes.iter(), NOTHING, Turn::Alone);
    for _ in 0..10 {
        let _ = lanes[0].on_free(SizeClass::Small, 512, 512);
    }
    peaks.refresh(lanes.iter(), NOTHING, Turn::Alone);
    let visits = Cell::new(0);
    let watched = lanes.iter().inspect(|_| {
        visits.set(visits.get() + 1);
        if visits.get() == lanes.len() + 1 {
            for _ in 0..4 {
                assert_eq!(allocate(&lanes[1]), Watermark::Within);
            }
        }
    });
    peaks.refresh(watched, NOTHING, Turn::Alone);
    let mut live = 4;
    for lane in &lanes {
        while allocate(lane) == Watermark::Within {
            live += 1;
        }
    }
    assert_eq!(live, 10, "as many as there is room for below the peak");
}

/// While threads are in each other's way, frees cross no floor but that of the cache's limit.
#[test]
fn a_crowd_does_not_watch_the_peak_of_inactive_bytes() {
    let lanes = [LaneCounters::new(), LaneCounters::new()];
    let mut peaks = Peaks::default();
    let class = SizeClass::Small;
    for lane in &lanes {
        lane.set_held_bytes(64 * 512);
        (0..64).for_each(|_| assert_eq!(lane.on_allocate(class, 512, 512), Watermark::Crossed));
    }
    let mut frees = |turn, inactive_limit_bytes| {
        let outside = Outside { inactive_limit_bytes, inactive_bytes: 0 };
        peaks.refresh(lanes.iter(), outside, turn);
        let is_within = || lanes[0].on_free(class, 512, 512) == Watermark::Within;
        let within = (0..10).take_while(|_| is_within()).count();
        (0..10.min(within + 1)).for_each(|_| {
            let _ = lanes[0].on_allocate(class, 512, 512);
        });
        (within, peaks.levels().inactive)
    };
    assert_eq!(frees(Turn::Alone, u64::MAX), (0, 0), "nothing was free before");
    assert_eq!(frees(Turn::Crowded, u64::MAX), (10, 0));
    assert_eq!(frees(Turn::Crowded, 8 * 512), (4, 0), "half of what the cache may have");
    assert_eq!(frees(Turn::Alone, u64::MAX), (0, 0));
}

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
#[test]
fn what_different_threads_write_is_on_different_cache_lines() {
    use std::mem::offset_of;
    const LINE: usize = 64;
    // The lane's calls, both, the lane's slow paths, refreshes.
    let groups = [
        offset_of!(LaneCounters, classes),
        offset_of!(LaneCounters, allowances),
        offset_of!(LaneCounters, shares) / LINE * LINE,
        offset_of!(LaneCounters, class_ceilings),
    ];
    assert_eq!(groups, [0, 2 * LINE, 3 * LINE, 5 * LINE]);
    assert_eq!(size_of::<LaneCounters>(), 8 * LINE);
}
