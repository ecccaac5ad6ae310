//! The ring between the threads that call the library and the thread that collects the events.
//!
//! It is a bounded queue with many producers and one consumer, without locks. A producer takes the
//! next sequence number (the only read-modify-write of a recorded call) and owns the slot of that
//! number until it publishes the number in the slot's stamp. The consumer reads slots in the order
//! of the numbers, waits for a missing stamp, and publishes up to where it has read; producers may
//! then use these slots again.
//!
//! Invariants: `read ≤ taken`; a slot's stamp is the number of its latest event plus one;
//! slot n is written only while `n − read < CAPACITY`. A slot has one producer at a time, because
//! numbers `CAPACITY` apart are never in use together.
//!
//! The numbers are the order of the events. It agrees with every order that a program can observe:
//! if one call returns before another begins, on any threads, its number is lower, because all
//! numbers come from one atomic.
//!
//! A full ring makes producers wait, because sums over events with holes would be wrong.

use super::event::{WORDS, Words};
use crate::base::CachePadded;
use crate::base::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::base::sync::{IS_MODEL, waiting};

/// Events in the ring: 8 MiB, which is two milliseconds of the busiest possible program and seconds
/// of a usual one.
pub(in crate::observe) const CAPACITY: usize = if IS_MODEL { 2 } else { 1 << 17 };
/// A producer wakes the consumer after each this many numbers.
pub(super) const WAKE_INTERVAL: u64 = (CAPACITY as u64).div_ceil(4);

/// The ring.
#[derive(Debug)]
pub(super) struct Ring {
    taken: CachePadded<AtomicU64>,
    read: CachePadded<AtomicU64>,
    slots: Box<[Slot; CAPACITY]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    stamp: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Ring {
    pub(super) fn new() -> Self {
        let slots: Box<[Slot]> = std::iter::repeat_with(Slot::default).take(CAPACITY).collect();
        let slots = slots.try_into().unwrap_or_else(|_| unreachable!("CAPACITY slots were made"));
        Self { taken: CachePadded::default(), read: CachePadded::default(), slots }
    }

    /// Appends an event; waits while the ring is full. `wake` wakes the consumer.
    #[inline]
    pub(super) fn push(&self, words: Words, wake: impl Fn()) {
        let number = self.taken.fetch_add(1, Relaxed);
        if number - self.read() >= CAPACITY as u64 {
            self.wait_for_room(number, &wake);
        }
        let slot = self.slot(number);
        for (place, word) in slot.words.iter().zip(words) {
            place.store(word, Relaxed);
        }
        slot.stamp.store(number + 1, Release);
        if number.is_multiple_of(WAKE_INTERVAL) {
            wake();
        }
    }

    #[cold]
    fn wait_for_room(&self, number: u64, wake: &dyn Fn()) {
        let mut patience = Patience::default();
        while number - self.read() >= CAPACITY as u64 {
            wake();
            patience.wait();
        }
    }

    /// The count of numbers taken: events that are written or being written.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Acquire)
    }

    /// Up to where the consumer has read.
    #[inline]
    pub(super) fn read(&self) -> u64 {
        self.read.load(Acquire)
    }

    /// The event of a number that was taken and not released, for the one consumer; waits for its
    /// producer.
    pub(super) fn get(&self, number: u64) -> Words {
        let slot = self.slot(number);
        let mut patience = Patience::default();
        while slot.stamp.load(Acquire) != number + 1 {
            patience.wait();
        }
        slot.words.each_ref().map(|word| word.load(Relaxed))
    }

    /// Lets producers reuse the slots of all numbers below `number`; for the one consumer.
    pub(super) fn release(&self, number: u64) {
        self.read.store(number, Release);
    }

    #[inline]
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[number as usize % CAPACITY]
    }
}

/// Waits for another thread: spins while it is probably running, then yields in case it needs our
/// processor, then sleeps.
#[derive(Default)]
struct Patience {
    rounds: u32,
}

impl Patience {
    fn wait(&mut self) {
        self.rounds += 1;
        match self.rounds {
            0..100 => waiting::spin_loop(),
            100..200 => waiting::yield_now(),
            _ => waiting::sleep(std::time::Duration::from_micros(100)),
        }
    }
}

#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
#[path = "ring_models.rs"]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_many_threads_arrive_once_and_in_the_order_of_each() {
        const THREADS: u64 = 4;
        const EVENTS: u64 = CAPACITY as u64; // so the ring is full and laps
        let ring = Ring::new();
        let mut next = [0; THREADS as usize];
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let ring = &ring;
                scope.spawn(move || {
                    (0..EVENTS).for_each(|n| ring.push([thread, n, 0, 0, 0, !(thread ^ n)], || ()));
                });
            }
            for number in 0..THREADS * EVENTS {
                let [thread, n, .., check] = ring.get(number);
                assert_eq!(check, !(thread ^ n), "torn");
                assert_eq!(next[thread as usize], n, "out of order");
                next[thread as usize] += 1;
                ring.release(number + 1);
            }
        });
        assert_eq!((next, ring.read()), ([EVENTS; 4], ring.taken()));
    }
}
