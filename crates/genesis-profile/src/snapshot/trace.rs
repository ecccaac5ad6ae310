//! The entries of a device's trace, such that PyTorch's viewer can undo them.
//!
//! The viewer begins with the final segments and undoes one entry after the other, last first. It
//! fails if a segment that it must remove does not exist, or if a block that must reappear lies in
//! no segment. The profile's own events do not guarantee that: for memory that moved, the history
//! has its home but not its other mappings, and a long history has lost its begin. So the entries
//! are made backwards like the viewer's walk, with the memory that is mapped and live at each step.
//! Of events that map and unmap, only the parts that fit are written. If a block would reappear
//! outside of mapped memory, an entry is added that unmaps that memory after the block was freed.
//!
//! Invariant of each step back: every live block lies in mapped pieces, and each piece is part of
//! one segment of the viewer (which joins neighbours; here they stay separate).

use std::collections::{BTreeMap, HashMap};
use std::io;

use super::values::Values;
use super::{runs, stream_key, time_us};
use crate::model::{Action, BlockState, Event, Profile};

/// The entries of a device's trace, in order.
pub struct Trace {
    entries: Vec<Entry>,
    /// Whether segments are mapped and unmapped in parts, not allocated and freed as a whole.
    pub is_expandable: bool,
}

struct Entry {
    action: &'static str,
    address: u64,
    bytes: u64,
    stream: u32,
    site: u32,
    /// 1 + the index of the metadata in the names; 0 for none.
    metadata: u32,
    time_ns: u64,
    /// For a failed request: the free memory of the device.
    free_bytes: Option<u64>,
}

/// The trace of the device in row `row`.
pub fn of_device(profile: &Profile, row: usize) -> Trace {
    let ordinal = profile.devices[row].ordinal;
    let events: Vec<&Event> =
        profile.history.events.iter().filter(|event| event.device == ordinal).collect();
    let is_mapped = |event: &&Event| matches!(event.action, Action::Map | Action::Unmap);
    let has_holes = |profile: &Profile| {
        let mut segments = profile.segments.iter().filter(|segment| segment.device == ordinal);
        segments.any(|s| runs(s).next().is_none_or(|run| run.len() != s.blocks.len()))
    };
    let mut whole = None;
    if !events.iter().any(is_mapped) && !has_holes(profile) {
        whole = Walk::new(profile, row, false).back(&events);
    }
    let is_expandable = whole.is_none();
    let entries = whole.or_else(|| Walk::new(profile, row, true).back(&events));
    Trace { entries: entries.unwrap_or_default(), is_expandable }
}

/// Writes the entries, followed by one for the snapshot itself.
pub fn write(profile: &Profile, trace: &Trace, out: &mut dyn Values) -> io::Result<()> {
    for entry in &trace.entries {
        out.begin_dict()?;
        out.word("action", entry.action)?;
        match entry.free_bytes {
            Some(free_bytes) => out.number("device_free", free_bytes)?,
            None => out.number("addr", entry.address)?,
        }
        out.number("size", entry.bytes)?;
        out.number("stream", stream_key(profile, entry.stream))?;
        out.number("time_us", time_us(profile, entry.time_ns))?;
        write_contexts(profile, entry.metadata, out)?;
        out.key("frames")?;
        out.frames(entry.site, profile.site(entry.site))?;
        out.end_dict()?;
    }
    out.begin_dict()?;
    out.word("action", "snapshot")?;
    out.number("addr", 0)?;
    out.number("size", 0)?;
    out.number("stream", 0)?;
    out.number("time_us", time_us(profile, profile.duration_ns))?;
    write_contexts(profile, 0, out)?;
    out.key("frames")?;
    out.frames(0, profile.site(0))?;
    out.end_dict()
}

/// What PyTorch knows of a call besides its stack.
fn write_contexts(profile: &Profile, metadata: u32, out: &mut dyn Values) -> io::Result<()> {
    // Which frame is being compiled is told to PyTorch's own allocator only.
    out.word("compile_context", "N/A")?;
    out.key("user_metadata")?;
    out.text(metadata.checked_sub(1).map_or("", |index| profile.name(index)))
}

/// What only the events before an event tell.
#[derive(Clone, Copy, Default)]
struct Context {
    /// For `Free`: `Pending` follows. For `Ready`: its `Free` is in the history.
    is_in_two: bool,
    /// For `Ready`: the size requested.
    requested_bytes: u64,
    /// For `OutOfMemory`: the free memory of the device.
    free_bytes: u64,
}

/// The state of the viewer at a step, and the entries so far, latest first.
struct Walk<'p> {
    profile: &'p Profile,
    row: usize,
    is_expandable: bool,
    /// Start → end of pieces, which do not overlap.
    mapped: BTreeMap<u64, u64>,
    /// Start → end.
    live: BTreeMap<u64, u64>,
    entries: Vec<Entry>,
}

impl<'p> Walk<'p> {
    fn new(profile: &'p Profile, row: usize, is_expandable: bool) -> Self {
        let ordinal = profile.devices[row].ordinal;
        let mut mapped = BTreeMap::new();
        let mut live = BTreeMap::new();
        for segment in profile.segments.iter().filter(|segment| segment.device == ordinal) {
            for run in runs(segment) {
                if let (Some(first), Some(last)) = (run.first(), run.last()) {
                    mapped.insert(first.address, last.address.saturating_add(last.bytes));
                }
                let active = run.iter().filter(|block| block.state != BlockState::Free);
                live.extend(active.map(|b| (b.address, b.address.saturating_add(b.bytes))));
            }
        }
        Self { profile, row, is_expandable, mapped, live, entries: Vec::new() }
    }

    /// The entries, in order. `None` if they should be whole segments and are not.
    fn back(mut self, events: &[&Event]) -> Option<Vec<Entry>> {
        let contexts = self.contexts(events);
        for (event, context) in events.iter().zip(contexts).rev() {
            let end = event.address.saturating_add(event.block_bytes);
            let fits = match event.action {
                Action::Allocate | Action::AllocateMiss => {
                    self.live.remove(&event.address);
                    self.push(event, "alloc", event.address, event.requested_bytes);
                    true
                }
                Action::Free if context.is_in_two => {
                    self.push(event, "free_requested", event.address, event.requested_bytes);
                    true
                }
                Action::Free => {
                    let fits = self.appear(event, end);
                    self.push(event, "free_completed", event.address, event.requested_bytes);
                    self.push(event, "free_requested", event.address, event.requested_bytes);
                    fits
                }
                Action::Ready if context.is_in_two => {
                    let fits = self.appear(event, end);
                    self.push(event, "free_completed", event.address, context.requested_bytes);
                    fits
                }
                Action::Map => self.take_away(event, end),
                Action::Reserve if event.address > 0 => self.take_away(event, end),
                Action::Unmap => self.put_back(event, end),
                Action::Release if event.address > 0 => self.put_back(event, end),
                Action::OutOfMemory => {
                    self.push(event, "oom", 0, event.requested_bytes);
                    if let Some(entry) = self.entries.last_mut() {
                        entry.free_bytes = Some(context.free_bytes);
                    }
                    true
                }
                _ => true,
            };
            if !fits && !self.is_expandable {
                return None;
            }
        }
        self.entries.reverse();
        Some(self.entries)
    }

    fn contexts(&self, events: &[&Event]) -> Vec<Context> {
        let mut contexts = vec![Context::default(); events.len()];
        let usable_bytes = self.profile.devices[self.row].usable_bytes;
        let start = self.profile.history.start.get(self.row);
        let mut reserved_bytes = start.map_or(0, |levels| levels.reserved_bytes);
        let mut freed: HashMap<u64, usize> = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            match event.action {
                Action::Free => {
                    freed.insert(event.address, index);
                }
                Action::Allocate | Action::AllocateMiss => {
                    freed.remove(&event.address);
                }
                Action::Pending => {
                    if let Some(&free) = freed.get(&event.address) {
                        contexts[free].is_in_two = true;
                    }
                }
                Action::Ready => {
                    if let Some(free) = freed.remove(&event.address) {
                        contexts[index].is_in_two = contexts[free].is_in_two;
                        contexts[index].requested_bytes = events[free].requested_bytes;
                    }
                }
                Action::Reserve => {
                    reserved_bytes = reserved_bytes.saturating_add(event.block_bytes);
                }
                Action::Release => {
                    reserved_bytes = reserved_bytes.saturating_sub(event.block_bytes);
                }
                Action::OutOfMemory => {
                    contexts[index].free_bytes = usable_bytes.saturating_sub(reserved_bytes);
                }
                _ => {}
            }
        }
        contexts
    }

    fn push(&mut self, event: &Event, action: &'static str, address: u64, bytes: u64) {
        let &Event { stream, site, name: metadata, time_ns, .. } = event;
        let free_bytes = None;
        let entry = Entry { action, address, bytes, stream, site, metadata, time_ns, free_bytes };
        self.entries.push(entry);
    }

    /// Before this event a block existed; returns true if it lies in mapped memory.
    fn appear(&mut self, event: &Event, end: u64) -> bool {
        self.live.insert(event.address, end);
        let holes = self.holes(event.address, end);
        for &(from, to) in &holes {
            self.push(event, "segment_unmap", from, to - from);
            self.mapped.insert(from, to);
        }
        holes.is_empty()
    }

    /// Before this event nothing was mapped here; returns true if it is one piece, whole and
    /// unused.
    fn take_away(&mut self, event: &Event, end: u64) -> bool {
        let is_used = self.live.range(..end).next_back().is_some_and(|(_, &to)| to > event.address);
        if is_used || end == event.address {
            return false;
        }
        if !self.is_expandable {
            let is_whole = self.mapped.get(&event.address) == Some(&end);
            self.mapped.remove(&event.address);
            self.push(event, "segment_alloc", event.address, event.block_bytes);
            return is_whole;
        }
        for (from, to) in self.pieces(event.address, end) {
            self.mapped.remove(&from);
            let (left, right) = (from.max(event.address), to.min(end));
            if from < left {
                self.mapped.insert(from, left);
            }
            if right < to {
                self.mapped.insert(right, to);
            }
            self.push(event, "segment_map", left, right - left);
        }
        true
    }

    /// Before this event memory was mapped here; returns true if none of it is now.
    fn put_back(&mut self, event: &Event, end: u64) -> bool {
        let holes = self.holes(event.address, end);
        let is_whole = holes == [(event.address, end)];
        for (from, to) in holes {
            let action = if self.is_expandable { "segment_unmap" } else { "segment_free" };
            self.push(event, action, from, to - from);
            self.mapped.insert(from, to);
        }
        is_whole
    }

    /// The whole pieces that overlap a range.
    fn pieces(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let before = self.mapped.range(..start).next_back().filter(|&(_, &to)| to > start);
        let inside = if start < end { Some(self.mapped.range(start..end)) } else { None };
        before.into_iter().chain(inside.into_iter().flatten()).map(|(&a, &b)| (a, b)).collect()
    }

    /// The unmapped parts of a range.
    fn holes(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut from = start;
        for (left, right) in self.pieces(start, end) {
            if left > from {
                holes.push((from, left));
            }
            from = from.max(right);
        }
        if from < end {
            holes.push((from, end));
        }
        holes
    }
}
