//! The invariants of a profile: indices are in range, and blocks lie in their segments.
//!
//! Sums are not checked, because a program may have been killed half way. The forms do not rely on
//! the invariants, because the library does not check the profiles that it makes: they use the
//! functions below, which accept every index.

use std::ops::Range;

use crate::model::{LiveBlock, Profile, Segment, Site};

impl Profile {
    /// Checks the invariants.
    ///
    /// # Errors
    /// A text about the first violation.
    pub fn validate(&self) -> Result<(), String> {
        let start_rows = self.history.start.len();
        if start_rows != self.devices.len() && !(start_rows == 0 && self.history.events.is_empty())
        {
            return Err(format!(
                "{} devices, and {start_rows} of them when the history begins",
                self.devices.len()
            ));
        }
        for (of, timeline) in self.timelines.iter().enumerate() {
            if timeline.interval_ns == 0 && !timeline.peaks.is_empty() {
                return Err(format!("timeline {of} has intervals of no length"));
            }
        }
        for (of, summary) in self.call_sites.iter().enumerate() {
            check("call site summary", of, "site", summary.site, self.sites.len().max(1))?;
        }
        for (of, block) in self.live.iter().enumerate() {
            self.validate_live("live block", of, block)?;
        }
        for (of, block) in self.history.start_live.iter().enumerate() {
            self.validate_live("block live at the history's begin", of, block)?;
        }
        self.segments.iter().enumerate().try_for_each(|(of, s)| self.validate_segment(of, s))?;
        for (of, event) in self.history.events.iter().enumerate() {
            check("event", of, "site", event.site, self.sites.len().max(1))?;
            check("event", of, "name", event.name, self.names.len().max(1))?;
            check("event", of, "stream", event.stream, self.streams.len().max(1))?;
        }
        Ok(())
    }

    fn validate_live(&self, what: &str, of: usize, block: &LiveBlock) -> Result<(), String> {
        check(what, of, "site", block.site, self.sites.len().max(1))?;
        check(what, of, "stream", block.stream, self.streams.len().max(1))?;
        check(what, of, "tag", block.tag.unwrap_or(0), self.names.len().max(1))?;
        extent(block.address, block.block_bytes).ok_or(format!("{what} {of} ends nowhere"))?;
        Ok(())
    }

    fn validate_segment(&self, of: usize, segment: &Segment) -> Result<(), String> {
        check("segment", of, "stream", segment.stream, self.streams.len().max(1))?;
        let wrong = || format!("segment {of} is not what its blocks are");
        let whole = extent(segment.address, segment.bytes).ok_or_else(wrong)?;
        let mut end = whole.start;
        for (index, block) in segment.blocks.iter().enumerate() {
            check("block", index, "site", block.site, self.sites.len().max(1))?;
            let part = extent(block.address, block.bytes).ok_or_else(wrong)?;
            if part.start != end {
                return Err(wrong());
            }
            end = part.end;
        }
        if end == whole.end { Ok(()) } else { Err(wrong()) }
    }

    /// The call site at an index; the unknown site for an index out of range.
    pub fn site(&self, index: u32) -> &Site {
        static UNKNOWN: Site = Site { frames: Vec::new() };
        self.sites.get(index as usize).unwrap_or(&UNKNOWN)
    }

    /// The name at an index; empty for an index out of range.
    pub fn name(&self, index: u32) -> &str {
        self.names.get(index as usize).map_or("", String::as_str)
    }

    /// The row of `devices` with an ordinal.
    pub fn device_row(&self, ordinal: u32) -> Option<usize> {
        self.devices.iter().position(|device| device.ordinal == ordinal)
    }

    /// Returns true if call sites were recorded.
    pub fn has_sites(&self) -> bool {
        !self.call_sites.is_empty()
    }
}

fn check(what: &str, of: usize, field: &str, index: u32, length: usize) -> Result<(), String> {
    if (index as usize) < length {
        return Ok(());
    }
    Err(format!("{what} {of} has {field} {index}, of {length}"))
}

fn extent(address: u64, bytes: u64) -> Option<Range<u64>> {
    Some(address..address.checked_add(bytes)?)
}
