//! Nodes of a tree that is read without a lock: taken out by one thread while others read, and used
//! again.
//!
//! Memory of a node stays a node's until all of [`Nodes`] goes (type-stable memory: Greenwald and
//! Cheriton, "The Synergy Between Non-blocking Synchronization and Operating System Structure", 1996).
//! So a reader that comes late reads a node that serves elsewhere by now, which is no wrong access.
//! What it finds there must be checked by other means.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr;
use std::sync::Arc;

use super::lock::{Lock, rank};
use super::sync::atomic::{AtomicPtr, Ordering};

/// What can be used again.
pub trait Node: Default + Send + Sync {
    /// Makes it as it was at first, while others may read it.
    fn clear(&self);
}

/// All nodes that were made, and those of them that are in no place.
///
/// **Threads.** Any thread may call anything.
pub struct Nodes<T>(Lock<Made<T>, { rank::LEAF }>);

struct Made<T> {
    /// Each came from a box.
    all: Vec<*mut T>,
    unused: Vec<*mut T>,
}

// SAFETY: the pointers own their nodes, as boxes would.
unsafe impl<T: Send> Send for Made<T> {}

impl<T: Node> Nodes<T> {
    /// No node yet.
    pub fn new() -> Self {
        Self(Lock::new(Made { all: Vec::new(), unused: Vec::new() }))
    }

    /// A node that is in no place, as it was at first.
    fn take(&self) -> *mut T {
        if let Some(node) = self.0.lock().unused.pop() {
            return node;
        }
        let node = Box::into_raw(Box::<T>::default());
        self.0.lock().all.push(node);
        node
    }

    fn give_back(&self, node: *mut T) {
        self.0.lock().unused.push(node);
    }

    /// How many nodes there are, used or not.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.lock().all.len()
    }
}

impl<T> Drop for Made<T> {
    fn drop(&mut self) {
        for &node in &self.all {
            // SAFETY: it came from a box, is here once, and places keep all nodes from going.
            drop(unsafe { Box::from_raw(node) });
        }
    }
}

impl<T> fmt::Debug for Nodes<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Nodes").finish_non_exhaustive()
    }
}

/// `N` places, each with one of `nodes` or none.
///
/// **Threads.** Any thread may call anything.
#[derive(Debug)]
pub struct Places<T, const N: usize> {
    places: Box<[AtomicPtr<T>; N]>,
    nodes: Arc<Nodes<T>>,
}

impl<T: Node, const N: usize> Places<T, N> {
    /// Places without a node, which get theirs from `nodes`.
    pub fn new(nodes: Arc<Nodes<T>>) -> Self {
        Self { places: boxed_array(|| AtomicPtr::new(ptr::null_mut())), nodes }
    }

    /// The node at `place`, if there is one. It may be taken out meanwhile.
    #[inline]
    pub fn get(&self, place: usize) -> Option<&T> {
        let node = self.places[place].load(Ordering::Acquire);
        // SAFETY: only nodes of `self.nodes` are put there, whole, and these live as long as `self`.
        // They are never borrowed but shared.
        unsafe { node.as_ref() }
    }

    /// The node at `place`; there is one afterwards.
    #[inline]
    pub fn get_or_put(&self, place: usize) -> &T {
        match self.get(place) {
            Some(node) => node,
            None => self.put(place),
        }
    }

    #[cold]
    fn put(&self, place: usize) -> &T {
        let node = self.nodes.take();
        let (empty, place) = (ptr::null_mut(), &self.places[place]);
        let put = place.compare_exchange(empty, node, Ordering::AcqRel, Ordering::Acquire);
        let there = put.map_or_else(
            |earlier| {
                self.nodes.give_back(node);
                earlier
            },
            |_| node,
        );
        // SAFETY: as in `get`; neither is null.
        unsafe { &*there }
    }

    /// Takes out the node at `place`, if there is one. Threads that have got it may read it, but
    /// nobody may write to it any more.
    pub fn take_out(&self, place: usize) -> Option<TakenOut<'_, T>> {
        let node = self.places[place].swap(ptr::null_mut(), Ordering::AcqRel);
        (!node.is_null()).then(|| TakenOut { node, nodes: &self.nodes })
    }
}

/// A node that was taken out; dropping it makes it ready for use at another place.
pub struct TakenOut<'a, T: Node> {
    node: *mut T,
    nodes: &'a Nodes<T>,
}

impl<T: Node> Drop for TakenOut<'_, T> {
    fn drop(&mut self) {
        // SAFETY: it is one of `nodes`, as in `Places::get`.
        unsafe { &*self.node }.clear();
        self.nodes.give_back(self.node);
    }
}

/// An array made in place on the heap: nodes are too large for a small thread's stack.
#[cold]
pub fn boxed_array<T, const N: usize>(element: impl FnMut() -> T) -> Box<[T; N]> {
    let elements: Box<[T]> = std::iter::repeat_with(element).take(N).collect();
    match elements.try_into() {
        Ok(array) => array,
        Err(_) => unreachable!("the iterator yields exactly N elements"),
    }
}
