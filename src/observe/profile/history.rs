//! The latest events up to a number of them, and the state when they begin.
//!
//! Events are kept in pieces; if there is no room for another piece, the oldest is dropped. The
//! state at the beginning is not kept: it is computed from the present state by undoing the events,
//! last first.

use std::collections::VecDeque;

use genesis_profile::model::{Action, Event, Levels, LiveBlock};

use crate::observe::addresses::AddressMap;

/// Events in a piece.
const PIECE: usize = 1 << 14;

/// The latest events.
#[derive(Debug)]
pub(super) struct History {
    pieces: VecDeque<Vec<Event>>,
    capacity: usize,
    dropped: u64,
}

impl History {
    /// Keeps the latest `capacity` events, and less than two pieces more.
    pub(super) fn new(capacity: usize) -> Self {
        Self { pieces: VecDeque::new(), capacity, dropped: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, event: Event) {
        if self.pieces.back().is_none_or(|piece| piece.len() == PIECE) {
            self.make_room();
        }
        match self.pieces.back_mut() {
            Some(piece) => piece.push(event),
            None => self.dropped += 1,
        }
    }

    /// Keeps the latest `capacity` events from now on.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.pieces.len() > self.most_pieces() {
            self.drop_oldest();
        }
    }

    /// Without the last, which is not full, they have room for `capacity` events.
    fn most_pieces(&self) -> usize {
        self.capacity.div_ceil(PIECE) + 1
    }

    /// Drops all events.
    pub(super) fn clear(&mut self) {
        while !self.pieces.is_empty() {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let oldest = self.pieces.pop_front();
        self.dropped += oldest.map_or(0, |piece| piece.len() as u64);
    }

    /// Begins a new piece, in the memory of the oldest if there are enough.
    fn make_room(&mut self) {
        if self.capacity == 0 {
            return;
        }
        let is_full = self.pieces.len() >= self.most_pieces();
        let piece = if is_full { self.pieces.pop_front() } else { None };
        let mut piece = piece.unwrap_or_else(|| Vec::with_capacity(PIECE));
        self.dropped += piece.len() as u64;
        piece.clear();
        self.pieces.push_back(piece);
    }

    /// The number of events before the first that is kept.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.pieces.iter().flatten()
    }

    /// Undoes the events: `levels` by device and `live` become those before them.
    pub(super) fn take_back(&self, levels: &mut [(u32, Levels)], live: &mut AddressMap<LiveBlock>) {
        for event in self.events().rev() {
            if let Some((_, levels)) = levels.iter_mut().find(|(of, _)| *of == event.device) {
                take_back_one(event, levels);
            }
            match event.action {
                Action::Allocate | Action::AllocateMiss => {
                    live.remove(&event.address);
                }
                Action::Free => {
                    let block = LiveBlock {
                        device: event.device,
                        stream: event.stream,
                        address: event.address,
                        requested_bytes: event.requested_bytes,
                        block_bytes: event.block_bytes,
                        age_ns: None,
                        site: event.site,
                        tag: None,
                    };
                    live.insert(event.address, block);
                }
                _ => {}
            }
        }
    }
}

fn take_back_one(event: &Event, levels: &mut Levels) {
    let Event { requested_bytes, block_bytes, .. } = *event;
    let down = |level: &mut u64, bytes| *level = level.saturating_sub(bytes);
    match event.action {
        Action::Allocate | Action::AllocateMiss => {
            down(&mut levels.requested_bytes, requested_bytes);
            down(&mut levels.allocated_bytes, block_bytes);
            down(&mut levels.active_bytes, block_bytes);
        }
        Action::Free => {
            levels.requested_bytes += requested_bytes;
            levels.allocated_bytes += block_bytes;
            levels.active_bytes += block_bytes;
        }
        Action::Pending => down(&mut levels.active_bytes, block_bytes),
        Action::Ready => levels.active_bytes += block_bytes,
        Action::Reserve => down(&mut levels.reserved_bytes, block_bytes),
        Action::Release => levels.reserved_bytes += block_bytes,
        _ => {}
    }
}
