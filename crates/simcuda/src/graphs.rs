//! Graphs that captures ended as, and the executables made of them.
//!
//! A graph is what `simgpu` captured: touches in order. Nodes are numbers without content. A
//! launch enqueues the touches again; it moves no bytes, even where memory is real.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use simgpu::{Code, Graph};

use crate::answer::Answer;

/// Handles of graphs, executables and nodes: nothing lies there.
const FIRST_HANDLE: u64 = 0x5e00_0000_0000;
const HANDLE_STEP: u64 = 1 << 20;

/// All graphs of the process, by handle.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    made: u64,
    graphs: HashMap<u64, Arc<Graph>>,
    executables: HashMap<u64, Arc<Graph>>,
}

impl Graphs {
    /// Keeps a graph and returns its handle.
    pub(crate) fn add(&self, graph: Graph) -> u64 {
        let mut table = self.lock();
        let handle = table.next_handle();
        table.graphs.insert(handle, Arc::new(graph));
        handle
    }

    /// Makes an executable of a graph.
    pub(crate) fn instantiate(&self, graph: u64) -> Answer<u64> {
        let mut table = self.lock();
        let graph = table.graphs.get(&graph).cloned().ok_or(Code::INVALID_VALUE)?;
        let handle = table.next_handle();
        table.executables.insert(handle, graph);
        Ok(handle)
    }

    /// What an executable launches.
    pub(crate) fn executable(&self, handle: u64) -> Answer<Arc<Graph>> {
        self.lock().executables.get(&handle).cloned().ok_or(Code::INVALID_VALUE)
    }

    /// The handles of a graph's nodes.
    pub(crate) fn nodes(&self, graph: u64) -> Answer<impl Iterator<Item = u64> + use<>> {
        let count = self.lock().graphs.get(&graph).ok_or(Code::INVALID_VALUE)?.touch_count();
        Ok((1..=count as u64).map(move |index| graph + index))
    }

    /// Forgets a graph; executables made of it stay.
    pub(crate) fn remove(&self, graph: u64) -> Answer {
        self.lock().graphs.remove(&graph).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    /// Forgets an executable.
    pub(crate) fn remove_executable(&self, handle: u64) -> Answer {
        self.lock().executables.remove(&handle).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    /// How many graphs and executables there are.
    pub(crate) fn count(&self) -> usize {
        let table = self.lock();
        table.graphs.len() + table.executables.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn next_handle(&mut self) -> u64 {
        self.made += 1;
        FIRST_HANDLE + self.made * HANDLE_STEP
    }
}

/// The handle that stands for the graph of a capture that has not ended.
pub(crate) const fn graph_of_capture(capture: u64) -> u64 {
    capture
}
