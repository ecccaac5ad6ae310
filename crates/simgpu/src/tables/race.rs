//! The race detector's memory: who touched which physical bytes last.
//!
//! Each piece of memory has an interval map by offset. A segment keeps its last write and, for
//! each stream, the last read after it. That is enough: what comes after the last operation of
//! a stream comes after its earlier ones too. A touch conflicts with a remembered one that its
//! clock does not contain, if one of the two writes.
//!
//! The map is bounded. A touch that the host knows to be complete comes before everything to
//! come and is dropped; neighbours with the same history are joined; freed memory is forgotten.
//! What stays is work in flight. The clocks decide, so the progress of queues does not matter.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::clock::Clock;
use crate::touch::{Access, Touch};

/// The map is swept once it has more segments than this and than twice those the last sweep left.
const LEAST_SWEEP: usize = 4096;

#[derive(Debug)]
pub(crate) struct Detector {
    /// What the host knows to be complete.
    pub(crate) host: Clock,
    /// Changes whenever `host` does; starts at 1, so that new streams differ from it.
    pub(crate) host_version: u64,
    shadow: HashMap<u64, BTreeMap<u64, Segment>>,
    segments: usize,
    sweep_at: usize,
}

#[derive(Clone, Debug)]
struct Segment {
    end: u64,
    write: Option<Arc<Touch>>,
    reads: Vec<Arc<Touch>>,
}

/// A remembered touch that a new one is not ordered after, and where they overlap.
#[derive(Debug)]
pub(crate) struct Conflict {
    pub(crate) earlier: Arc<Touch>,
    pub(crate) offset_bytes: u64,
    pub(crate) bytes: u64,
}

impl Default for Detector {
    fn default() -> Self {
        Self {
            host: Clock::default(),
            host_version: 1,
            shadow: HashMap::new(),
            segments: 0,
            sweep_at: LEAST_SWEEP,
        }
    }
}

impl Detector {
    /// The host learns that the first `sequence` operations of a stream are complete, and all
    /// that came before them by `clock`.
    pub(crate) fn observe(&mut self, slot: u32, sequence: u64, clock: Option<&Clock>) {
        self.host.advance(slot, sequence);
        if let Some(clock) = clock {
            self.host.join(clock);
        }
        self.host_version += 1;
    }

    /// How many segments are remembered.
    pub(crate) fn segments(&self) -> usize {
        self.segments
    }

    /// Forgets a piece of memory.
    pub(crate) fn forget(&mut self, memory: u64) {
        if let Some(segments) = self.shadow.remove(&memory) {
            self.segments -= segments.len();
        }
    }

    /// Compares a touch of `[offset, offset + bytes)` of a piece of memory with those remembered,
    /// and remembers it in their place. `clock` is that of the touch's stream.
    pub(crate) fn touch(
        &mut self,
        memory: u64,
        offset_bytes: u64,
        bytes: u64,
        touch: &Arc<Touch>,
        clock: &Clock,
    ) -> Vec<Conflict> {
        let segments = self.shadow.entry(memory).or_default();
        let count_before = segments.len();
        let end = offset_bytes + bytes;
        cut(segments, offset_bytes);
        cut(segments, end);
        let mut conflicts = Vec::new();
        let is_ordered = |earlier: &Touch| {
            let known = clock.get(earlier.slot).max(self.host.get(earlier.slot));
            known >= earlier.sequence
        };
        for (&start, segment) in segments.range(offset_bytes..end) {
            let reads = segment.reads.iter().filter(|_| touch.access == Access::Write);
            for earlier in segment.write.iter().chain(reads) {
                if !is_ordered(earlier) {
                    note(&mut conflicts, earlier, start, segment.end - start);
                }
            }
        }
        if touch.stream.is_some() {
            remember(segments, offset_bytes, end, touch, &self.host);
        }
        self.segments = self.segments + segments.len() - count_before;
        if self.segments > self.sweep_at {
            self.sweep();
        }
        conflicts
    }

    /// Returns true if the segments are counted right, disjoint and not empty.
    pub(crate) fn is_consistent(&self) -> bool {
        let total: usize = self.shadow.values().map(BTreeMap::len).sum();
        let disjoint = |segments: &BTreeMap<u64, Segment>| {
            let mut previous_end = 0;
            segments.iter().all(|(&start, segment)| {
                let is_good = previous_end <= start && start < segment.end;
                previous_end = segment.end;
                is_good
            })
        };
        total == self.segments && self.shadow.values().all(disjoint)
    }

    /// Drops everything that the host knows to be complete.
    fn sweep(&mut self) {
        let host = &self.host;
        self.shadow.retain(|_, segments| {
            segments.retain(|_, segment| {
                segment.forget_known(host);
                segment.write.is_some() || !segment.reads.is_empty()
            });
            !segments.is_empty()
        });
        self.segments = self.shadow.values().map(BTreeMap::len).sum();
        self.sweep_at = LEAST_SWEEP.max(2 * self.segments);
    }
}

impl Segment {
    fn forget_known(&mut self, host: &Clock) {
        let is_open = |touch: &Arc<Touch>| host.get(touch.slot) < touch.sequence;
        self.write = self.write.take().filter(is_open);
        self.reads.retain(is_open);
    }

    fn add(&mut self, touch: &Arc<Touch>) {
        match touch.access {
            Access::Write => {
                self.write = Some(touch.clone());
                self.reads.clear();
            }
            Access::Read => {
                self.reads.retain(|earlier| earlier.slot != touch.slot);
                self.reads.push(touch.clone());
            }
        }
    }

    fn same_history(&self, other: &Self) -> bool {
        let same_write = match (&self.write, &other.write) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (None, None) => true,
            _ => false,
        };
        same_write
            && self.reads.len() == other.reads.len()
            && self.reads.iter().zip(&other.reads).all(|(mine, theirs)| Arc::ptr_eq(mine, theirs))
    }
}

/// Makes `offset` a boundary between segments.
fn cut(segments: &mut BTreeMap<u64, Segment>, offset: u64) {
    let Some((_, segment)) = segments.range_mut(..offset).next_back() else { return };
    if segment.end > offset {
        let tail = segment.clone();
        segment.end = offset;
        segments.insert(offset, tail);
    }
}

/// Adds a touch to every segment of `[start, end)`, fills the gaps, and joins neighbours that
/// have become alike. `start` and `end` are boundaries.
fn remember(
    segments: &mut BTreeMap<u64, Segment>,
    start: u64,
    end: u64,
    touch: &Arc<Touch>,
    host: &Clock,
) {
    let mut old: Vec<(u64, Segment)> = Vec::new();
    while let Some((&first, _)) = segments.range(start..end).next() {
        if let Some(segment) = segments.remove(&first) {
            old.push((first, segment));
        }
    }
    let fresh = |end| {
        let mut segment = Segment { end, write: None, reads: Vec::new() };
        segment.add(touch);
        segment
    };
    let mut next = start;
    for (first, mut segment) in old {
        if next < first {
            insert_joined(segments, next, fresh(first));
        }
        next = segment.end;
        segment.forget_known(host);
        segment.add(touch);
        insert_joined(segments, first, segment);
    }
    if next < end {
        insert_joined(segments, next, fresh(end));
    }
}

fn insert_joined(segments: &mut BTreeMap<u64, Segment>, start: u64, segment: Segment) {
    if let Some((_, before)) = segments.range_mut(..start).next_back()
        && before.end == start
        && before.same_history(&segment)
    {
        before.end = segment.end;
        return;
    }
    segments.insert(start, segment);
}

/// Adds a conflict, or widens the one found with the same touch.
fn note(conflicts: &mut Vec<Conflict>, earlier: &Arc<Touch>, offset_bytes: u64, bytes: u64) {
    let same = |conflict: &&mut Conflict| Arc::ptr_eq(&conflict.earlier, earlier);
    match conflicts.iter_mut().find(same) {
        Some(conflict) => conflict.bytes = offset_bytes + bytes - conflict.offset_bytes,
        None => conflicts.push(Conflict { earlier: earlier.clone(), offset_bytes, bytes }),
    }
}
