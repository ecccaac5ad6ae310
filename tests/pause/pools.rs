//! The memory of private pools, also of graphs: paused with a tag, and back where it was.

use std::sync::Arc;

use genesis::base::size::{KIB, MIB};
use genesis::base::{Backup, Status};
use genesis::heap::{Keeping, Place, PoolId, PoolOptions};
use simgpu::{StoreKind, Work};

use crate::support::{A, B, DEVICE, Rig, is_filled, status_of};
use crate::{Held, WEIGHTS, on_both_stores, subject};

on_both_stores! {
    a_graphs_memory_comes_back_where_it_was
    dropped_memory_of_a_graph_is_there_again
    a_pool_that_ends_while_it_is_paused
    blocks_of_a_graph_freed_while_it_is_paused
    new_memory_of_a_paused_pool
    a_pool_without_graphs_gives_its_cache_up
    pools_with_memory_of_their_own_stay
    a_pool_is_in_no_tag_again
    tags_of_pools_are_asked_for_rightly
}

pub const POOL: PoolId = PoolId(0, 9);

/// A pool from which a graph was captured: what is live in it, and what the graph uses besides.
struct Graph {
    rig: Rig,
    live: Vec<Held>,
    free: Vec<Held>,
}

impl Rig {
    /// Begins a capture's pool for stream B, with the tag.
    pub fn begin_graph(&self, backup: Backup) {
        self.heap.begin_pool(DEVICE, POOL, Arc::new(|stream| stream == B)).unwrap();
        self.heap.set_pool_tag(DEVICE, POOL, WEIGHTS, backup).unwrap();
    }

    /// A block of the pool that is free again, with bytes in it.
    pub fn hold_and_free(&self, bytes: u64, pattern: u8) -> Held {
        let held = self.hold(None, bytes, B, pattern);
        self.free(held.address);
        held
    }

    /// A graph that is replayed writes there.
    #[track_caller]
    pub fn replay(&self, held: &Held) {
        let work = Work::write(held.address, held.bytes, "a graph");
        self.machine.touch(0, held.stream.0, work).unwrap();
        assert_eq!(self.machine.take_violations(), []);
    }

    /// Free memory of a pool is there, with its bytes.
    #[track_caller]
    pub fn check_free(&self, held: &Held, store: StoreKind) {
        self.replay(held);
        if store == StoreKind::RealBytes {
            let (start, length) = (held.address as *const u8, held.bytes as usize);
            // SAFETY: mapped memory of the pool, as the touch has shown.
            let bytes = unsafe { std::slice::from_raw_parts(start, length) };
            assert!(is_filled(bytes, held.pattern), "{held:?} has changed");
        }
    }

    fn release_graph(&self) {
        self.heap.release_pool(DEVICE, POOL).unwrap();
    }
}

impl Graph {
    fn new(store: StoreKind, backup: Backup) -> Self {
        let rig = subject(store).plan().start();
        rig.begin_graph(backup);
        let mut live = Vec::new();
        let mut free = Vec::new();
        for (number, bytes) in [700, 90 * KIB, 3 * MIB, 30 * MIB].into_iter().enumerate() {
            let pattern = 1 + 2 * number as u8;
            let between = rig.hold(None, bytes, B, pattern);
            live.push(rig.hold(None, bytes, B, pattern + 1));
            free.push(between);
        }
        free.iter().for_each(|held| rig.free(held.address));
        rig.heap.end_pool(DEVICE, POOL).unwrap();
        Self { rig, live, free }
    }

    #[track_caller]
    fn check(&self, store: StoreKind) {
        self.live.iter().for_each(|held| self.rig.check_held(held));
        self.free.iter().for_each(|held| self.rig.check_free(held, store));
        self.rig.check();
    }

    fn pause(&self) {
        self.rig.heap.pause_tags(Some(WEIGHTS), Keeping::default()).unwrap();
        self.rig.check();
    }

    fn finish(self) {
        self.rig.release_graph();
        self.rig.finish_without_host_memory();
    }
}

fn a_graphs_memory_comes_back_where_it_was(store: StoreKind) {
    for backup in [Backup::Pinned, Backup::Pageable, Backup::Disk] {
        let graph = Graph::new(store, backup);
        let reserved_bytes = graph.rig.reserved_bytes();
        for _ in 0..2 {
            graph.pause();
            assert_eq!(graph.rig.reserved_bytes(), 0);
            graph.rig.resume(WEIGHTS);
            assert_eq!(graph.rig.reserved_bytes(), reserved_bytes);
            graph.check(store);
        }
        assert_eq!(graph.rig.heap.generation(WEIGHTS), Ok(2));
        graph.finish();
    }
}

fn dropped_memory_of_a_graph_is_there_again(store: StoreKind) {
    let graph = Graph::new(store, Backup::None);
    graph.pause();
    assert_eq!((graph.rig.reserved_bytes(), graph.rig.host_bytes()), (0, 0));
    graph.rig.resume(WEIGHTS);
    graph.live.iter().chain(&graph.free).for_each(|held| graph.rig.replay(held));
    graph.finish();
}

fn a_pool_that_ends_while_it_is_paused(store: StoreKind) {
    let graph = Graph::new(store, Backup::Pinned);
    graph.pause();
    let all_bytes = graph.rig.host_bytes();
    graph.rig.release_graph();
    graph.rig.check();
    graph.rig.resume(WEIGHTS);
    assert!(graph.rig.reserved_bytes() <= all_bytes);
    graph.live.iter().for_each(|held| graph.rig.check_held(held));
    graph.rig.finish_without_host_memory();

    let graph = Graph::new(store, Backup::Pinned);
    graph.pause();
    graph.live.iter().for_each(|held| graph.rig.free(held.address));
    assert!(graph.rig.host_bytes() > 0, "the graph may be replayed");
    graph.rig.release_graph();
    graph.rig.pause(WEIGHTS, true);
    assert_eq!(graph.rig.host_bytes(), 0);
    graph.rig.resume(WEIGHTS);
    assert_eq!(graph.rig.reserved_bytes(), 0, "nothing is left");
    graph.rig.finish_without_host_memory();
}

fn blocks_of_a_graph_freed_while_it_is_paused(store: StoreKind) {
    let mut graph = Graph::new(store, Backup::Pinned);
    graph.pause();
    for held in graph.live.drain(..) {
        graph.rig.free(held.address);
        graph.rig.check();
        let again = status_of(graph.rig.heap.free(held.address));
        assert!(matches!(again, Status::DoubleFree | Status::ForeignPointer), "{again:?}");
        graph.free.push(held);
    }
    graph.rig.resume(WEIGHTS);
    graph.check(store);
    // Free memory of the pool, which can be made live where it was.
    let held = graph.free.iter().find(|held| held.bytes == 3 * MIB).unwrap();
    let blocks = graph.rig.heap.pool_blocks(DEVICE, POOL).unwrap();
    let stream = blocks[0].stream;
    let place = Place { address: held.address, bytes: held.bytes, requested_bytes: 1, stream };
    graph.rig.heap.place_in_pool(DEVICE, POOL, &[place]).unwrap();
    graph.finish();
}

fn new_memory_of_a_paused_pool(store: StoreKind) {
    let mut graph = Graph::new(store, Backup::Pinned);
    graph.pause();
    graph.rig.heap.begin_pool(DEVICE, POOL, Arc::new(|stream| stream == B)).unwrap();
    let busy = graph.rig.heap.resume_tags(None);
    assert_eq!(status_of(busy), Status::Busy, "a stream may be captured");
    let new = graph.rig.hold(None, 5 * MIB, B, 99);
    graph.rig.heap.end_pool(DEVICE, POOL).unwrap();
    graph.rig.release_graph();
    graph.live.push(new);
    graph.pause();
    assert_eq!(graph.rig.reserved_bytes(), 0);
    graph.rig.resume(WEIGHTS);
    graph.check(store);
    graph.finish();
}

fn a_pool_without_graphs_gives_its_cache_up(store: StoreKind) {
    let rig = subject(store).plan().start();
    rig.heap.begin_pool_of_thread(DEVICE, POOL).unwrap();
    rig.heap.set_pool_tag(DEVICE, POOL, WEIGHTS, Backup::Pinned).unwrap();
    let held = rig.hold(None, 24 * MIB, A, 1);
    let cached = rig.hold(None, 60 * MIB, A, 2);
    rig.free(cached.address);
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    rig.heap.pause_tags(None, Keeping::default()).unwrap();
    assert_eq!((rig.reserved_bytes(), rig.host_bytes()), (0, held.bytes));
    rig.resume(WEIGHTS);
    assert!(rig.reserved_bytes() < 60 * MIB);
    rig.check_held(&held);
    rig.release_graph();
    rig.finish_without_host_memory();
}

fn pools_with_memory_of_their_own_stay(store: StoreKind) {
    let rig = subject(store).plan().start();
    let options = PoolOptions { keeps_whole: true, ..PoolOptions::default() };
    rig.heap.create_pool(DEVICE, POOL, options).unwrap();
    rig.heap.set_pool_tag(DEVICE, POOL, WEIGHTS, Backup::Pinned).unwrap();
    rig.heap.begin_pool_of_thread(DEVICE, POOL).unwrap();
    let held = rig.hold(None, 24 * MIB, A, 1);
    rig.heap.end_pool(DEVICE, POOL).unwrap();
    let reserved_bytes = rig.reserved_bytes();
    rig.heap.pause_tags(None, Keeping::default()).unwrap();
    assert_eq!(rig.reserved_bytes(), reserved_bytes, "segments are not paused");
    rig.check_held(&held);
    rig.resume(WEIGHTS);
    (0..2).for_each(|_| rig.release_graph());
    rig.finish_without_host_memory();
}

fn a_pool_is_in_no_tag_again(store: StoreKind) {
    let graph = Graph::new(store, Backup::Pinned);
    graph.rig.heap.set_pool_tag(DEVICE, POOL, "", Backup::None).unwrap();
    graph.pause();
    graph.check(store);
    graph.rig.heap.set_pool_tag(DEVICE, POOL, WEIGHTS, Backup::Pinned).unwrap();
    graph.pause();
    graph.rig.heap.set_pool_tag(DEVICE, POOL, "", Backup::None).unwrap();
    graph.rig.resume(WEIGHTS);
    graph.check(store);
    graph.finish();
}

fn tags_of_pools_are_asked_for_rightly(store: StoreKind) {
    let rig = subject(store).plan().start();
    let set = |pool| rig.heap.set_pool_tag(DEVICE, pool, WEIGHTS, Backup::None);
    assert_eq!(status_of(set(POOL)), Status::InvalidArgument, "nobody holds it");
    rig.heap.hold_pool(DEVICE, POOL, false).unwrap();
    set(POOL).unwrap();
    rig.release_graph();
    assert_eq!(status_of(set(POOL)), Status::InvalidArgument);
    rig.finish();
}
