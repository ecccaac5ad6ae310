//! The streams that `record_stream` named for live blocks.
//!
//! A block's streams form a short list of nodes, kept in a common table per lane so that
//! nothing is allocated once the table has grown to the program's needs.

use super::StreamKey;
use crate::base::StreamHandle;

/// The end of a list.
const NO_NODE: u32 = u32::MAX;

/// The lists of one lane.
#[derive(Debug)]
pub struct RecordedStreams {
    nodes: Vec<Node>,
    vacant: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    handle: StreamHandle,
    key: StreamKey,
    next: u32,
}

impl RecordedStreams {
    /// The list without a stream: what a block starts with.
    pub const NONE: u32 = NO_NODE;

    /// No list.
    pub fn new() -> Self {
        Self { nodes: Vec::new(), vacant: NO_NODE }
    }

    /// The list `first` with the stream `handle`, whose queue is `key`, added unless it is there.
    pub fn add(&mut self, first: u32, handle: StreamHandle, key: StreamKey) -> u32 {
        let mut index = first;
        while index != NO_NODE {
            let node = self.nodes[index as usize];
            if node.key == key {
                return first;
            }
            index = node.next;
        }
        let node = Node { handle, key, next: first };
        if self.vacant == NO_NODE {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let index = self.vacant;
        self.vacant = self.nodes[index as usize].next;
        self.nodes[index as usize] = node;
        index
    }

    /// Takes the first stream off the list `first`; gives it and the rest of the list.
    pub fn pop(&mut self, first: u32) -> Option<(StreamHandle, StreamKey, u32)> {
        if first == NO_NODE {
            return None;
        }
        let Node { handle, key, next } = self.nodes[first as usize];
        self.nodes[first as usize].next = self.vacant;
        self.vacant = first;
        Some((handle, key, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sets_and_nodes_are_reused() {
        let mut recorded = RecordedStreams::new();
        let mut list = RecordedStreams::NONE;
        for handle in [7, 8, 7, 9, 8] {
            list = recorded.add(list, StreamHandle(handle), StreamKey(handle as u64));
        }
        let mut other = recorded.add(RecordedStreams::NONE, StreamHandle(7), StreamKey(7));
        let mut seen = Vec::new();
        while let Some((handle, _, rest)) = recorded.pop(list) {
            seen.push(handle.0);
            list = rest;
        }
        assert_eq!(seen, [9, 8, 7]);
        other = recorded.add(other, StreamHandle(8), StreamKey(8));
        assert_eq!(recorded.nodes.len(), 4);
        assert_eq!(recorded.pop(other).unwrap().0, StreamHandle(8));
    }
}
