//! What is live: with the place and time of each allocation, and as a report for the end of a
//! process.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::super::report::describe;
use super::super::{Heap, LiveBlock};
use crate::base::size::Bytes;
use crate::base::{DeviceOrdinal, Result};
use crate::memory::State;

/// A live block, with what debugging knows of it.
#[derive(Clone, Debug)]
pub struct LiveDetail {
    /// The block.
    pub block: LiveBlock,
    /// How long ago it was allocated, where that is known.
    pub age: Option<Duration>,
    /// Where in the program: a number of the stream of events; 0: not known.
    pub site: u32,
    /// The tag it was allocated under.
    pub tag: Option<Arc<str>>,
}

/// Live blocks that were allocated in one place, whoever called it, on one device and under one
/// tag.
struct Group<'a> {
    first: &'a LiveDetail,
    place: String,
    count: u64,
    bytes: u64,
    /// The size that all of them have.
    each_bytes: Option<u64>,
    youngest: Option<Duration>,
    oldest: Option<Duration>,
}

impl Heap {
    /// The live blocks asked for with at least `least_bytes`, of `device` or of all, largest
    /// first. Asks nothing of the driver; a device not used has none.
    pub fn live_details(
        &self,
        device: Option<DeviceOrdinal>,
        least_bytes: u64,
    ) -> Result<Vec<LiveDetail>> {
        device.map(|device| self.slot(device)).transpose()?;
        let now = (self.clock)();
        let mut live = Vec::new();
        for lane in self.lanes.iter().filter(|lane| device.is_none_or(|one| one == lane.device)) {
            let tag = self.tags.name(lane.pool());
            let state = lane.lock();
            let chosen = state.blocks.iter().filter(|(_, block)| {
                matches!(block.state, State::Live | State::Paused)
                    && block.requested_bytes >= least_bytes
            });
            live.extend(chosen.map(|(_, block)| LiveDetail {
                block: describe(lane, block),
                age: None,
                site: 0,
                tag: tag.clone(),
            }));
        }
        {
            let ledger = self.debugging.ledger.lock();
            for detail in &mut live {
                if let Some(birth) = ledger.birth(detail.block.address) {
                    detail.age = Some(now.saturating_sub(birth.time));
                    detail.site = birth.site;
                }
            }
        }
        live.sort_by_key(|one| (std::cmp::Reverse(one.block.requested_bytes), one.block.address));
        Ok(live)
    }

    /// What is live, in lines, grouped by where it was allocated; `None` if nothing is.
    pub fn leak_report(&self) -> Option<String> {
        let live = self.live_details(None, 0).unwrap_or_default();
        let groups = self.group(&live);
        let bytes = live.iter().map(|one| one.block.requested_bytes).sum();
        let mut text = format!("{} of {} live at exit:\n", blocks(live.len() as u64), Bytes(bytes));
        for group in &groups {
            let block = &group.first.block;
            let _ = write!(text, "  {} of {}", blocks(group.count), Bytes(group.bytes));
            if let Some(each_bytes) = group.each_bytes.filter(|_| group.count > 1) {
                let _ = write!(text, ", {each_bytes} bytes each");
            } else if group.count == 1 {
                let _ = write!(text, " ({} bytes at {:#x})", group.bytes, block.address);
            }
            let _ = write!(text, ", device {}", block.device);
            if let Some(tag) = &group.first.tag {
                let _ = write!(text, ", tag {tag:?}");
            }
            if let (Some(youngest), Some(oldest)) = (group.youngest, group.oldest) {
                let (youngest, oldest) = (youngest.as_secs_f64(), oldest.as_secs_f64());
                let _ = match group.count {
                    1 => write!(text, ", {oldest:.3} s old"),
                    _ => write!(text, ", {youngest:.3} to {oldest:.3} s old"),
                };
            }
            let _ = writeln!(text, ", allocated {}", group.place);
        }
        (!live.is_empty()).then_some(text)
    }

    /// Groups live blocks; the largest groups first.
    fn group<'a>(&self, live: &'a [LiveDetail]) -> Vec<Group<'a>> {
        let mut places: HashMap<u32, String> = HashMap::new();
        let mut index = HashMap::new();
        let mut groups: Vec<Group<'a>> = Vec::new();
        for one in live {
            let place = places.entry(one.site).or_insert_with(|| self.place(one.site));
            let key = (place.clone(), one.block.device.0, one.tag.clone());
            let bytes = one.block.requested_bytes;
            let position = *index.entry(key).or_insert_with(|| {
                groups.push(Group {
                    first: one,
                    place: place.clone(),
                    count: 0,
                    bytes: 0,
                    each_bytes: Some(bytes),
                    youngest: one.age,
                    oldest: one.age,
                });
                groups.len() - 1
            });
            let group = &mut groups[position];
            group.count += 1;
            group.bytes += bytes;
            group.each_bytes = group.each_bytes.filter(|&each| each == bytes);
            group.youngest = group.youngest.min(one.age);
            group.oldest = group.oldest.max(one.age);
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
        groups
    }
}

fn blocks(count: u64) -> String {
    match count {
        1 => "1 block".to_owned(),
        count => format!("{count} blocks"),
    }
}
