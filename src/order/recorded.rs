//! The streams that `record_stream` named for live blocks.
//!
//! A block's streams form a short list of nodes, kept in a common table per lane so that
//! nothing is allocated once the table has grown to the program's needs. The lane also remembers
//! the contexts of the latest streams it met: a stream stays in its context, so the driver is
//! asked once.

use super::omission::Step;
use super::{Stream, StreamKey};

/// The end of a list.
const NO_NODE: u32 = u32::MAX;
/// How many streams' contexts are remembered.
const REMEMBERED: usize = 16;

/// The lists of one lane.
#[derive(Debug)]
pub struct RecordedStreams {
    nodes: Vec<Node>,
    vacant: u32,
    /// Streams and their contexts; once full, `next` is the oldest.
    contexts: Vec<(StreamKey, u16)>,
    next: usize,
}

/// A stream that was recorded, and the number of the context it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The stream.
    pub stream: Stream,
    /// Among the contexts of the device (`super::Contexts`).
    pub context: u16,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    recorded: Recorded,
    next: u32,
}

impl RecordedStreams {
    /// The empty list, which a block starts with.
    pub const NONE: u32 = NO_NODE;

    /// No list.
    pub fn new() -> Self {
        Self { nodes: Vec::new(), vacant: NO_NODE, contexts: Vec::new(), next: 0 }
    }

    /// Returns the list `first` with `recorded` added, unless its queue is in the list.
    pub fn add(&mut self, first: u32, recorded: Recorded) -> u32 {
        if Step::Record.is_left_out() {
            return first;
        }
        let mut index = first;
        while index != NO_NODE {
            let node = self.nodes[index as usize];
            if node.recorded.stream.key == recorded.stream.key {
                return first;
            }
            index = node.next;
        }
        let node = Node { recorded, next: first };
        if self.vacant == NO_NODE {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let index = self.vacant;
        self.vacant = self.nodes[index as usize].next;
        self.nodes[index as usize] = node;
        index
    }

    /// Takes the first stream off the list `first`; returns it and the rest of the list.
    pub fn pop(&mut self, first: u32) -> Option<(Recorded, u32)> {
        if first == NO_NODE {
            return None;
        }
        let Node { recorded, next } = self.nodes[first as usize];
        self.nodes[first as usize].next = self.vacant;
        self.vacant = first;
        Some((recorded, next))
    }

    /// How many streams the list `first` has.
    pub fn count(&self, mut first: u32) -> u32 {
        let mut count = 0;
        while first != NO_NODE {
            first = self.nodes[first as usize].next;
            count += 1;
        }
        count
    }

    /// The context of the stream `key`, if it is remembered.
    pub fn context_of(&self, key: StreamKey) -> Option<u16> {
        self.contexts.iter().find(|(known, _)| *known == key).map(|&(_, context)| context)
    }

    /// Remembers the context of the stream `key`.
    pub fn remember(&mut self, key: StreamKey, context: u16) {
        if self.contexts.len() < REMEMBERED {
            self.contexts.push((key, context));
        } else {
            self.contexts[self.next] = (key, context);
            self.next = (self.next + 1) % REMEMBERED;
        }
    }

    /// The stream `key` is about to end, and is known as `ended` from now on: its handle may not be
    /// used.
    pub fn end_stream(&mut self, key: StreamKey, ended: StreamKey) {
        for node in &mut self.nodes {
            if node.recorded.stream.key == key {
                node.recorded.stream.key = ended;
            }
        }
        self.contexts.retain(|(known, _)| *known != key);
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::StreamHandle;

    fn recorded(handle: usize) -> Recorded {
        Recorded { stream: Stream::lasting(StreamHandle(handle)), context: 0 }
    }

    #[test]
    fn lists_are_sets_and_nodes_are_reused() {
        let mut streams = RecordedStreams::new();
        let mut list = RecordedStreams::NONE;
        for handle in [7, 8, 7, 9, 8] {
            list = streams.add(list, recorded(handle));
        }
        let mut other = streams.add(RecordedStreams::NONE, recorded(7));
        let mut seen = Vec::new();
        while let Some((recorded, rest)) = streams.pop(list) {
            seen.push(recorded.stream.handle.0);
            list = rest;
        }
        assert_eq!(seen, [9, 8, 7]);
        other = streams.add(other, recorded(8));
        assert_eq!(streams.nodes.len(), 4);
        assert_eq!(streams.pop(other).unwrap().0, recorded(8));
    }

    #[test]
    fn contexts_of_the_latest_streams_are_remembered() {
        let mut streams = RecordedStreams::new();
        for number in 0..2 * REMEMBERED as u64 + 3 {
            streams.remember(StreamKey(number), number as u16);
        }
        let last = 2 * REMEMBERED as u64 + 2;
        for number in last + 1 - REMEMBERED as u64..=last {
            assert_eq!(streams.context_of(StreamKey(number)), Some(number as u16));
        }
        assert_eq!(streams.context_of(StreamKey(last - REMEMBERED as u64)), None);
        streams.end_stream(StreamKey(last), StreamKey::of_ended(0));
        assert_eq!(streams.context_of(StreamKey(last)), None);
    }

    #[test]
    fn a_stream_that_ends_alone_has_another_name() {
        let mut streams = RecordedStreams::new();
        let list = streams.add(RecordedStreams::NONE, recorded(7));
        let list = streams.add(list, recorded(8));
        let ended = StreamKey::of_ended(3);
        streams.end_stream(recorded(7).stream.key, ended);
        let (last, rest) = streams.pop(list).unwrap();
        assert_eq!(last, recorded(8));
        assert_eq!(streams.pop(rest).map(|(first, _)| first.stream.key), Some(ended));
    }
}
