//! The profiles of a program's processes as one, with a device for each device of each process.
//!
//! All forms can then show them side by side. Times count from the process that began first; the
//! clocks of several machines are believed. The processes' devices are numbered anew, in the order in
//! which the processes are given, and addresses get the process's place in it above their bits.

use crate::model::{FORMAT, History, Levels, Profile, Timeline};

/// Addresses and threads have fewer bits; those above tell the processes apart.
const ADDRESS_BITS: u32 = 48;

/// Merges the profiles of processes with these names, such as `rank 3`. One alone is what it was.
pub fn merge(mut processes: Vec<(String, Profile)>) -> Profile {
    if processes.len() == 1 {
        return processes.remove(0).1;
    }
    let began = processes.iter().map(|(_, profile)| profile.started_unix_ns).min().unwrap_or(0);
    let mut merged =
        Profile { format: FORMAT.to_owned(), started_unix_ns: began, ..Profile::default() };
    for (number, (name, profile)) in (0..).zip(processes) {
        append(&mut merged, (number, &name), profile);
    }
    merged.history.events.sort_by_key(|event| event.time_ns);
    merged.live.sort_by_key(|block| std::cmp::Reverse(block.block_bytes));
    merged
}

/// How the indices of one process's profile are moved.
#[derive(Clone, Copy)]
struct Shift {
    process: u64,
    device: u32,
    stream: u32,
    name: u32,
    site: u32,
    later_ns: u64,
}

impl Shift {
    /// The sites of all processes share the unknown one.
    fn site(self, site: u32) -> u32 {
        if site == 0 { 0 } else { site + self.site }
    }

    /// An address, or a thread. 0 is none.
    fn place(self, address: u64) -> u64 {
        if address == 0 { 0 } else { address | self.process << ADDRESS_BITS }
    }
}

fn append(merged: &mut Profile, (number, process): (u64, &str), mut profile: Profile) {
    if merged.sites.is_empty() {
        merged.sites.push(Default::default());
    }
    let shift = Shift {
        process: number,
        device: merged.devices.iter().map(|device| device.ordinal + 1).max().unwrap_or(0),
        stream: merged.streams.len() as u32,
        name: merged.names.len() as u32,
        site: merged.sites.len() as u32 - 1,
        later_ns: profile.started_unix_ns.saturating_sub(merged.started_unix_ns),
    };
    // A process whose profile names its devices 1 and 3 gets the next two numbers.
    let ordinals: Vec<u32> = profile.devices.iter().map(|device| device.ordinal).collect();
    let number_of = |ordinal: u32| {
        let row = ordinals.iter().position(|&known| known == ordinal).unwrap_or(0);
        shift.device + row as u32
    };
    describe(merged, process, &profile);
    let starts = std::mem::take(&mut profile.history.start).into_iter();
    let starts = starts.chain(std::iter::repeat(Levels::default()));
    merged.history.start.extend(starts.take(profile.devices.len()));
    for mut device in profile.devices {
        device.name = format!("{process}: {}", device.name);
        device.ordinal = number_of(device.ordinal);
        merged.devices.push(device);
    }
    for mut stream in profile.streams {
        stream.device = number_of(stream.device);
        merged.streams.push(stream);
    }
    merged.names.append(&mut profile.names);
    merged.sites.extend(profile.sites.into_iter().skip(1));
    for timeline in profile.timelines {
        let device = number_of(timeline.device);
        merged.timelines.push(later(Timeline { device, ..timeline }, shift.later_ns));
    }
    for mut summary in profile.call_sites {
        summary.site = shift.site(summary.site);
        merged.call_sites.push(summary);
    }
    add_sizes(merged, &profile.sizes);
    let move_block = |block: &mut crate::model::LiveBlock| {
        block.device = number_of(block.device);
        block.address = shift.place(block.address);
        block.stream += shift.stream;
        block.site = shift.site(block.site);
        block.tag = block.tag.map(|tag| tag + shift.name);
    };
    profile.live.iter_mut().for_each(move_block);
    merged.live.append(&mut profile.live);
    let History { dropped_events, mut start_live, events, .. } = profile.history;
    start_live.iter_mut().for_each(move_block);
    merged.history.start_live.append(&mut start_live);
    merged.history.dropped_events += dropped_events;
    for mut segment in profile.segments {
        segment.device = number_of(segment.device);
        segment.stream += shift.stream;
        segment.address = shift.place(segment.address);
        for block in &mut segment.blocks {
            (block.address, block.site) = (shift.place(block.address), shift.site(block.site));
        }
        merged.segments.push(segment);
    }
    for mut event in events {
        event.time_ns += shift.later_ns;
        event.device = number_of(event.device);
        event.stream += shift.stream;
        event.site = shift.site(event.site);
        event.address = shift.place(event.address);
        // Blocks and memory count from 1.
        if event.action.has_name() || event.name > 0 {
            event.name += shift.name;
        }
        merged.history.events.push(event);
    }
}

/// What is said once of all processes.
fn describe(merged: &mut Profile, process: &str, profile: &Profile) {
    let end = profile.started_unix_ns.saturating_sub(merged.started_unix_ns);
    merged.duration_ns = merged.duration_ns.max(end.saturating_add(profile.duration_ns));
    if merged.program.is_empty() {
        merged.program = profile.program.clone();
        merged.process_id = profile.process_id;
        merged.genesis_version = profile.genesis_version.clone();
        merged.strategy = profile.strategy.clone();
        merged.backend = profile.backend.clone();
    }
    for (all, own) in
        [(&mut merged.strategy, &profile.strategy), (&mut merged.backend, &profile.backend)]
    {
        if !all.split(", ").any(|known| known == own) {
            all.push_str(&format!(", {own} ({process})"));
        }
    }
}

/// The timeline of a process that began `later_ns` later.
fn later(timeline: Timeline, later_ns: u64) -> Timeline {
    /// A wrong clock must not make a timeline of any length.
    const MOST_INTERVALS: u64 = 1 << 16;
    let before = later_ns.checked_div(timeline.interval_ns).unwrap_or(0).min(MOST_INTERVALS);
    let nothing = std::iter::repeat_n(Levels::default(), before as usize);
    Timeline { peaks: nothing.chain(timeline.peaks).collect(), ..timeline }
}

/// Adds counts to those of the same size. The sum of peaks is what all held if they peak together.
fn add_sizes(merged: &mut Profile, sizes: &[crate::model::SizeSummary]) {
    for size in sizes {
        let known = merged.sizes.iter_mut().find(|known| known.block_bytes == size.block_bytes);
        match known {
            Some(known) => known.counts.add(&size.counts),
            None => merged.sizes.push(*size),
        }
    }
}
