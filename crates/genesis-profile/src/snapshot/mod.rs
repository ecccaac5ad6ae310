//! The profile as PyTorch's own memory snapshot, for `torch.cuda._memory_viz` and
//! pytorch.org/memory_viz.
//!
//! The form is what `torch.cuda.memory._snapshot()` returns and `_dump_snapshot` pickles:
//! `segments` with their present `blocks`, `device_traces` with a list of entries for each device
//! by ordinal, `external_annotations`, `allocator_settings`. Its keys are those of PyTorch 2.11. A
//! segment has memory there, so an area with unmapped addresses becomes several segments, one for
//! each run of mapped addresses, as with PyTorch's expandable segments.
//!
//! **Left out.** Paused blocks, which have no memory.

mod trace;
mod values;

use std::io::{self, Write};

use crate::model::{Action, Block, BlockState, Profile, Segment};
use values::{Json, Pickle, Values};

/// Stands for private pools whose numbers are not known any more; PyTorch gives it to none.
const RELEASED_POOL: (u64, u64) = (u64::MAX, 0);

/// Writes the snapshot as a pickle.
///
/// # Errors
/// Those of `out`.
pub fn write_pickle(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut pickle = Pickle::begin(out)?;
    write(profile, &mut pickle)?;
    pickle.end()
}

/// Writes the snapshot as JSON, for other programs: PyTorch reads pickles only. Every entry has its
/// call site in full.
///
/// # Errors
/// Those of `out`.
pub fn write_json(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    write(profile, &mut Json::new(out))
}

fn write(profile: &Profile, out: &mut dyn Values) -> io::Result<()> {
    // By row of the profile's devices.
    let traces: Vec<trace::Trace> =
        (0..profile.devices.len()).map(|row| trace::of_device(profile, row)).collect();
    out.begin_dict()?;
    out.key("segments")?;
    out.begin_list()?;
    for segment in &profile.segments {
        let row = profile.device_row(segment.device);
        let in_parts = row.is_some_and(|row| traces[row].is_expandable);
        let is_expandable = in_parts && !segment.is_whole;
        for run in runs(segment) {
            write_segment(profile, segment, run, is_expandable, out)?;
        }
    }
    out.end_list()?;
    out.key("device_traces")?;
    out.begin_list()?;
    let ordinals = profile.devices.iter().map(|device| device.ordinal);
    // A list for each device up to the last in use, unless a document claims a huge ordinal.
    for ordinal in 0..ordinals.max().map_or(0, |last| last.min(1023) + 1) {
        out.begin_list()?;
        if let Some(row) = profile.device_row(ordinal) {
            trace::write(profile, &traces[row], out)?;
        }
        out.end_list()?;
    }
    out.end_list()?;
    write_annotations(profile, out)?;
    write_settings(profile, traces.iter().any(|trace| trace.is_expandable), out)?;
    out.end_dict()
}

/// The parts of a segment that have memory: runs of adjacent blocks.
fn runs(segment: &Segment) -> impl Iterator<Item = &[Block]> {
    let has_memory = |block: &Block| {
        let is_away = matches!(block.state, BlockState::Unmapped | BlockState::Paused);
        !is_away && block.bytes > 0
    };
    let split = segment.blocks.split(move |block| !has_memory(block));
    split.filter(|run| !run.is_empty())
}

fn sum(blocks: &[Block], of: impl Fn(&Block) -> u64) -> u64 {
    blocks.iter().fold(0, |sum, block| sum.saturating_add(of(block)))
}

/// PyTorch's numbers for the segment's pool.
fn pool_id(segment: &Segment) -> (u64, u64) {
    match segment.pool_id {
        (0, 0) if segment.is_private => RELEASED_POOL,
        id => id,
    }
}

fn write_segment(
    profile: &Profile,
    segment: &Segment,
    blocks: &[Block],
    is_expandable: bool,
    out: &mut dyn Values,
) -> io::Result<()> {
    let is_live = |block: &Block| block.state == BlockState::Live;
    let is_active = |block: &Block| block.state != BlockState::Free;
    let of = |is: &dyn Fn(&Block) -> bool| sum(blocks, |b| if is(b) { b.bytes } else { 0 });
    out.begin_dict()?;
    out.number("device", segment.device.into())?;
    out.number("address", blocks.first().map_or(segment.address, |block| block.address))?;
    out.number("total_size", sum(blocks, |block| block.bytes))?;
    out.number("allocated_size", of(&is_live))?;
    out.number("active_size", of(&is_active))?;
    out.number("requested_size", sum(blocks, |b| if is_live(b) { b.requested_bytes } else { 0 }))?;
    out.number("stream", stream_key(profile, segment.stream))?;
    out.word("segment_type", if segment.is_small { "small" } else { "large" })?;
    out.key("segment_pool_id")?;
    let (first, second) = pool_id(segment);
    out.pair(first, second)?;
    out.truth("is_expandable", is_expandable)?;
    out.key("frames")?;
    out.begin_list()?;
    out.end_list()?;
    out.key("blocks")?;
    out.begin_list()?;
    for block in blocks {
        let (state, requested_bytes) = match block.state {
            BlockState::Live => ("active_allocated", block.requested_bytes),
            BlockState::Pending => ("active_pending_free", block.bytes),
            _ => ("inactive", block.requested_bytes),
        };
        out.begin_dict()?;
        out.number("address", block.address)?;
        out.number("size", block.bytes)?;
        out.number("requested_size", requested_bytes)?;
        out.word("state", state)?;
        out.key("frames")?;
        out.frames(block.site, profile.site(block.site))?;
        out.end_dict()?;
    }
    out.end_list()?;
    out.end_dict()
}

/// The begins and ends of ranges.
fn write_annotations(profile: &Profile, out: &mut dyn Values) -> io::Result<()> {
    out.key("external_annotations")?;
    out.begin_list()?;
    // The names of each thread's open ranges, because an end has no name.
    let mut open: std::collections::HashMap<u64, Vec<u32>> = std::collections::HashMap::new();
    for event in &profile.history.events {
        let thread = open.entry(event.address);
        let (stage, name) = match event.action {
            Action::RangePush => {
                thread.or_default().push(event.name);
                ("START", event.name)
            }
            Action::RangePop => match thread.or_default().pop() {
                Some(name) => ("END", name),
                None => continue,
            },
            _ => continue,
        };
        out.begin_dict()?;
        out.number("device", event.device.into())?;
        out.word("stage", stage)?;
        out.key("name")?;
        out.text(profile.name(name))?;
        out.number("time_us", time_us(profile, event.time_ns))?;
        out.end_dict()?;
    }
    out.end_list()
}

fn write_settings(profile: &Profile, is_expandable: bool, out: &mut dyn Values) -> io::Result<()> {
    out.key("allocator_settings")?;
    out.begin_dict()?;
    for (key, value) in [
        ("PYTORCH_CUDA_ALLOC_CONF", ""),
        ("genesis_version", &profile.genesis_version),
        ("genesis_pool_type", &profile.strategy),
        ("genesis_backend", &profile.backend),
    ] {
        out.key(key)?;
        out.text(value)?;
    }
    out.truth("expandable_segments", is_expandable)?;
    out.end_dict()
}

fn stream_key(profile: &Profile, stream: u32) -> u64 {
    profile.streams.get(stream as usize).map_or(0, |stream| stream.key)
}

/// Microseconds since 1970.
fn time_us(profile: &Profile, time_ns: u64) -> u64 {
    profile.started_unix_ns.saturating_add(time_ns) / 1000
}

#[cfg(test)]
mod tests;
