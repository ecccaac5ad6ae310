//! The machine checks itself: every invariant that its files state.

use std::collections::HashMap;

use crate::machine::Machine;
use crate::state::State;
use crate::tables::{Memory, Origin};

/// The result of a check; the error is a sentence.
type Verdict = std::result::Result<(), String>;

impl Machine {
    /// Checks that the tables agree with each other; the error names what does not.
    pub fn validate(&self) -> Verdict {
        let state = self.lock();
        state.check_memory()?;
        state.check_span()?;
        state.check_mappings()?;
        state.check_accessible()?;
        state.check_small_pages()?;
        state.check_managed()?;
        state.check_streams()?;
        let pinned = [&state.host_memory, &state.registered];
        ensure(pinned.iter().all(|memory| memory.is_consistent()), || {
            "pinned memory is torn".into()
        })?;
        match &state.detector {
            Some(detector) if !detector.is_consistent() => Err("the shadow is torn".into()),
            _ => Ok(()),
        }
    }
}

impl State {
    /// Used bytes are those of the living memory, and every mapping is counted there.
    fn check_memory(&self) -> Verdict {
        let mut used = vec![0u64; self.devices.len()];
        let mut mappings: HashMap<u64, u32> = HashMap::new();
        for (_, mapping) in self.space.mappings() {
            *mappings.entry(mapping.memory).or_default() += 1;
        }
        for (key, memory) in self.physical.iter() {
            used[memory.device as usize] += memory.counted_bytes();
            let counted = mappings.remove(&key).unwrap_or(0);
            ensure(counted == memory.mappings, || format!("memory {key:#x} miscounts mappings"))?;
            let is_alive = !memory.released || memory.mappings > 0;
            ensure(is_alive, || format!("memory {key:#x} should be gone"))?;
        }
        ensure(mappings.is_empty(), || "a mapping shows memory that is gone".into())?;
        for (ordinal, (device, used)) in self.devices.iter().zip(used).enumerate() {
            let managed = self.managed.count_on(ordinal as u32) * self.largest_granule();
            let used = used + device.small.used_bytes() + managed;
            ensure(device.used_bytes == used && used <= device.config.capacity_bytes, || {
                format!("device {ordinal} counts {} used bytes, not {used}", device.used_bytes)
            })?;
            let is_own = |one: &&Memory| one.device as usize == ordinal && one.piece.is_some();
            let pieces = self.physical.iter().map(|(_, memory)| memory).filter(is_own);
            let apart: u64 = pieces.map(Memory::counted_bytes).sum();
            let private = self.common.as_ref().map(|one| one.private_bytes(ordinal as u32));
            ensure(private.is_none_or(|private| private + apart == used), || {
                format!("device {ordinal} counts {private:?} bytes beside {apart} shared ones")
            })?;
        }
        Ok(())
    }

    /// Free ranges, reservations, large allocations and pages make up the span without overlap.
    fn check_span(&self) -> Verdict {
        ensure(self.space.free().is_consistent(), || "free address ranges are torn".into())?;
        let mut ranges: Vec<(u64, u64)> = self.space.free().iter().collect();
        ranges.extend(self.space.reservations());
        for device in &self.devices {
            let page_bytes = device.small.page_bytes;
            ranges.extend(device.small.pages.keys().map(|&page| (page, page_bytes)));
        }
        for (address, mapping) in self.space.mappings() {
            match mapping.origin {
                Origin::LargeAllocation { range_bytes } | Origin::Managed { range_bytes } => {
                    ranges.push((address, range_bytes));
                }
                Origin::Opened { range_start, range_bytes } => {
                    ranges.push((range_start, range_bytes));
                }
                Origin::SmallAllocation | Origin::Handle => {}
            }
        }
        ranges.sort_unstable();
        let (base, bytes) = self.space.span();
        let mut next = base;
        for (start, bytes) in ranges {
            ensure(start == next, || format!("address space is torn at {next:#x}"))?;
            next = start + bytes;
        }
        ensure(next == base + bytes, || format!("address space ends at {next:#x}"))
    }

    /// Mappings are disjoint, and those of handles lie inside one reservation and are whole.
    fn check_mappings(&self) -> Verdict {
        let mut previous_end = 0;
        let mut reservations = self.space.reservations().peekable();
        for (start, mapping) in self.space.mappings() {
            ensure(previous_end <= start, || format!("mappings overlap at {start:#x}"))?;
            previous_end = start + mapping.bytes;
            if mapping.is_allocation() {
                continue;
            }
            while reservations.next_if(|&(base, bytes)| base + bytes <= start).is_some() {}
            let holds = |&(base, bytes): &(u64, u64)| base <= start && previous_end <= base + bytes;
            ensure(reservations.peek().is_some_and(holds), || {
                format!("the mapping at {start:#x} is outside every reservation")
            })?;
            let bytes = self.physical.get(mapping.memory).map(|memory| memory.bytes);
            ensure(bytes == Some(mapping.bytes), || format!("a partial mapping at {start:#x}"))?;
        }
        Ok(())
    }

    /// Mappings of handles that are accessible are counted right.
    fn check_accessible(&self) -> Verdict {
        let mappings = self.space.mappings().map(|(_, mapping)| mapping);
        let accessible = mappings.filter(|one| !one.is_allocation() && one.access != 0).count();
        ensure(accessible as u64 == self.space.accessible, || {
            format!("{} accessible mappings are counted, not {accessible}", self.space.accessible)
        })
    }

    /// The free parts of pages and the small allocations make up the pages.
    fn check_small_pages(&self) -> Verdict {
        let mut used = vec![0u64; self.devices.len()];
        for (_, mapping) in self.space.mappings() {
            if let (Origin::SmallAllocation, Some(memory)) =
                (mapping.origin, self.physical.get(mapping.memory))
            {
                used[memory.device as usize] += memory.bytes;
            }
        }
        for (device, used) in self.devices.iter().zip(used) {
            let small = &device.small;
            let free: u64 = small.free.iter().map(|(_, bytes)| bytes).sum();
            let all = small.pages.len() as u64 * small.page_bytes;
            ensure(small.free.is_consistent() && used + free == all, || {
                format!("pages of {all} bytes hold {used} used and {free} free")
            })?;
        }
        Ok(())
    }

    /// Managed pages lie in managed allocations, and all of these have theirs.
    fn check_managed(&self) -> Verdict {
        let page_bytes = self.largest_granule();
        let mappings = self.space.mappings().map(|(_, mapping)| mapping.origin);
        let pages = mappings.map(|origin| match origin {
            Origin::Managed { range_bytes } => (range_bytes / page_bytes) as usize,
            _ => 0,
        });
        let pages: usize = pages.sum();
        let is_managed = |address: u64| {
            let found = self.space.containing(address).map(|(_, mapping)| mapping.origin);
            matches!(found, Some(Origin::Managed { .. }))
        };
        let known = self.managed.addresses().filter(|&address| is_managed(address)).count();
        ensure(known == pages && self.managed.addresses().count() == pages, || {
            format!("{known} managed pages are known, not {pages}")
        })
    }

    /// Queues hold exactly what has not completed, and are counted right.
    fn check_streams(&self) -> Verdict {
        let queued: usize = self.streams.slots.iter().map(|stream| stream.queue.len()).sum();
        let held = self.streams.slots.iter().filter(|stream| stream.held).count();
        ensure((queued, held) == (self.streams.queued, self.streams.held), || {
            "the queued operations or the held streams are miscounted".into()
        })?;
        for stream in &self.streams.slots {
            let pending = stream.enqueued - stream.done;
            ensure(stream.queue.len() as u64 == pending, || {
                format!("stream {:#x} miscounts its queue", stream.handle)
            })?;
        }
        Ok(())
    }
}

fn ensure(holds: bool, complaint: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(complaint()) }
}
