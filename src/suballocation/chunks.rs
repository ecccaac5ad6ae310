//! The chunks of an arena, and the position in them up to which memory is handed out.
//!
//! ```text
//! chunks   [ full ][ full ][ current ····|      ][ kept ][ kept ]
//!                                     cursor   end
//! used  = Σ used bytes of the full chunks + (cursor - start of the current one)
//! cursor = end = 0 if there is no current chunk, or if each request is a chunk of its own
//! ```
//!
//! A mark is a number on a stack, so that one that a reset or an earlier rewind has ended is known.
//! Marks at the same position are one, so a loop that marks and rewinds keeps one.

use super::source::padded;

/// A block of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// How far memory is handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    /// How many chunks are begun.
    begun: usize,
    cursor: u64,
    /// Used bytes of the chunks before the current one.
    earlier_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Chunks {
    chunks: Vec<Chunk>,
    at: Position,
    end: u64,
    held_bytes: u64,
    /// The most bytes that were ever used between two resets.
    high_water_bytes: u64,
    /// By number, rising.
    marks: Vec<(u64, Position)>,
    last_mark: u64,
    /// Whether each request is a chunk of its own.
    pub(super) is_apart: bool,
}

impl Chunks {
    /// None.
    pub(super) fn new(is_apart: bool) -> Self {
        Self { is_apart, ..Self::default() }
    }

    /// Hands out `bytes` of the current chunk; `None` for 0 bytes.
    #[inline(always)]
    pub(super) fn bump(&mut self, bytes: u64, alignment_bytes: u64) -> Option<u64> {
        let mask = alignment_bytes - 1;
        let start = (self.at.cursor + mask) & !mask;
        let room_bytes = self.end.saturating_sub(start);
        // 0 bytes become more than any room.
        if bytes.wrapping_sub(1) >= room_bytes {
            return None;
        }
        self.at.cursor = start + bytes;
        Some(start)
    }

    /// Goes on to a kept chunk that is large enough, if there is one.
    pub(super) fn advance(&mut self, bytes: u64, alignment_bytes: u64) -> Option<u64> {
        let needed_bytes = padded(bytes, alignment_bytes)?;
        let kept = &self.chunks[self.at.begun..];
        let found = kept.iter().position(|chunk| chunk.bytes >= needed_bytes)?;
        self.chunks.swap(self.at.begun, self.at.begun + found);
        self.open_next();
        self.bump(bytes, alignment_bytes)
    }

    /// Adds a chunk and hands out `bytes` of it, which it has.
    pub(super) fn add(&mut self, chunk: Chunk, bytes: u64, alignment_bytes: u64) -> Option<u64> {
        self.chunks.insert(self.at.begun, chunk);
        self.held_bytes += chunk.bytes;
        self.open_next();
        let start = self.bump(bytes, alignment_bytes);
        if self.is_apart {
            self.at.earlier_bytes += chunk.bytes;
            (self.at.cursor, self.end) = (0, 0);
        }
        start
    }

    /// Adds a chunk for later.
    pub(super) fn keep(&mut self, chunk: Chunk) {
        self.chunks.push(chunk);
        self.held_bytes += chunk.bytes;
    }

    fn open_next(&mut self) {
        self.at.earlier_bytes += self.bytes_in_current();
        let chunk = self.chunks[self.at.begun];
        self.at.begun += 1;
        self.at.cursor = chunk.address;
        self.end = chunk.address + chunk.bytes;
    }

    fn bytes_in_current(&self) -> u64 {
        match self.at.begun.checked_sub(1) {
            Some(current) if self.end != 0 => self.at.cursor - self.chunks[current].address,
            _ => 0,
        }
    }

    /// A mark at the present position.
    pub(super) fn mark(&mut self) -> u64 {
        match self.marks.last() {
            Some(&(number, position)) if position == self.at => number,
            _ => {
                self.last_mark += 1;
                self.marks.push((self.last_mark, self.at));
                self.last_mark
            }
        }
    }

    /// Returns true if the mark has not ended.
    pub(super) fn has_mark(&self, number: u64) -> bool {
        self.marks.binary_search_by_key(&number, |&(number, _)| number).is_ok()
    }

    /// Goes back to a mark that has not ended, and ends those after it. If `keeps_memory`, the
    /// position stays. Returns chunks to give back.
    pub(super) fn rewind(&mut self, number: u64, keeps_memory: bool) -> Vec<Chunk> {
        let after = self.marks.partition_point(|&(other, _)| other <= number);
        self.marks.truncate(after);
        let Some(&(_, position)) = self.marks.last() else { return Vec::new() };
        self.note_high_water();
        if keeps_memory {
            return Vec::new();
        }
        self.at = position;
        self.end = match position.begun.checked_sub(1) {
            Some(current) if !self.is_apart => {
                self.chunks[current].address + self.chunks[current].bytes
            }
            _ => 0,
        };
        if self.is_apart { self.drain_from(position.begun) } else { Vec::new() }
    }

    /// Frees everything. Keeps one chunk, if it has room for the most that was ever used. Returns
    /// the chunks to give back.
    pub(super) fn reset(&mut self) -> Vec<Chunk> {
        self.note_high_water();
        self.marks.clear();
        if self.chunks.len() > 1 {
            let largest = (0..self.chunks.len()).max_by_key(|&index| self.chunks[index].bytes);
            self.chunks.swap(0, largest.unwrap_or(0));
        }
        let is_enough = |chunk: &Chunk| chunk.bytes >= self.high_water_bytes;
        let kept = usize::from(!self.is_apart && self.chunks.first().is_some_and(is_enough));
        self.at = Position::default();
        self.end = 0;
        let leaving = if self.chunks.len() > kept { self.drain_from(kept) } else { Vec::new() };
        if kept == 1 {
            self.open_next();
        }
        leaving
    }

    /// Takes out every chunk: others are responsible for them now.
    pub(super) fn abandon(&mut self) -> Vec<Chunk> {
        self.note_high_water();
        self.marks.clear();
        self.at = Position::default();
        self.end = 0;
        self.drain_from(0)
    }

    /// Takes out what is not in use, and forgets the high-water mark.
    pub(super) fn trim(&mut self) -> Vec<Chunk> {
        self.high_water_bytes = 0;
        if self.used_bytes() == 0 && self.marks.is_empty() {
            return self.abandon();
        }
        self.drain_from(self.at.begun)
    }

    fn drain_from(&mut self, first: usize) -> Vec<Chunk> {
        let leaving: Vec<Chunk> = self.chunks.drain(first..).collect();
        self.held_bytes -= leaving.iter().map(|chunk| chunk.bytes).sum::<u64>();
        leaving
    }

    fn note_high_water(&mut self) {
        self.high_water_bytes = self.high_water_bytes.max(self.used_bytes());
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.at.earlier_bytes + self.bytes_in_current()
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    pub(super) fn high_water_bytes(&self) -> u64 {
        self.high_water_bytes.max(self.used_bytes())
    }

    pub(super) fn count(&self) -> usize {
        self.chunks.len()
    }

    /// Returns true if `address` is in memory of the arena.
    pub(super) fn has(&self, address: u64) -> bool {
        let is_in = |chunk: &Chunk| (chunk.address..chunk.address + chunk.bytes).contains(&address);
        self.chunks.iter().any(is_in)
    }

    /// Checks the module's equations.
    pub(super) fn validate(&self) -> Result<(), String> {
        let held_bytes: u64 = self.chunks.iter().map(|chunk| chunk.bytes).sum();
        if held_bytes != self.held_bytes {
            return Err(format!("{held_bytes} bytes in chunks, {} recorded", self.held_bytes));
        }
        if self.at.begun > self.chunks.len() || self.used_bytes() > held_bytes {
            return Err(format!("{:?} in {} chunks", self.at, self.chunks.len()));
        }
        if self.end != 0 {
            let current = self.chunks[self.at.begun - 1];
            let end = current.address + current.bytes;
            if self.end != end || !(current.address..=end).contains(&self.at.cursor) {
                return Err(format!("{:?} is not in {current:?}", self.at));
            }
        }
        let is_rising =
            |pair: &[(u64, Position)]| pair[0].0 < pair[1].0 && pair[0].1.begun <= pair[1].1.begun;
        if !self.marks.windows(2).all(is_rising) {
            return Err(format!("marks out of order: {:?}", self.marks));
        }
        Ok(())
    }
}
