//! What is live: with the call site and time of each allocation, and as a report for the end of
//! a process.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::super::description::LiveBlock;
use crate::base::size::Bytes;

/// A live block, with what debugging knows of it.
#[derive(Clone, Debug)]
pub struct LiveDetail {
    /// The block.
    pub block: LiveBlock,
    /// How long ago it was allocated, if known.
    pub age: Option<Duration>,
    /// Its call site, by number in the stream of events; 0: not known.
    pub site: u32,
    /// The tag it was allocated under.
    pub tag: Option<Arc<str>>,
}

/// Live blocks allocated in one place (of any callers), on one device and under one tag.
struct Group<'a> {
    first: &'a LiveDetail,
    place: String,
    count: u64,
    bytes: u64,
    /// The size, if all have the same.
    each_bytes: Option<u64>,
    youngest: Option<Duration>,
    oldest: Option<Duration>,
}

/// A report of what is live, grouped by the text that `place` returns for a call site. `None` if
/// nothing is live.
pub(super) fn report(live: &[LiveDetail], place: impl Fn(u32) -> String) -> Option<String> {
    let groups = group(live, place);
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
fn group(live: &[LiveDetail], place_of: impl Fn(u32) -> String) -> Vec<Group<'_>> {
    let mut places: HashMap<u32, String> = HashMap::new();
    let mut index = HashMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for one in live {
        let place = places.entry(one.site).or_insert_with(|| place_of(one.site));
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

fn blocks(count: u64) -> String {
    match count {
        1 => "1 block".to_owned(),
        count => format!("{count} blocks"),
    }
}
