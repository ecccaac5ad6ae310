//! Attempts under drawn schedules: of requests for the last memory one is served, although each finds
//! that others have some of it under way.

use std::sync::Arc;

use shuttle::thread;

use super::*;
use crate::base::sync::atomic::AtomicU32;
use crate::base::sync::schedules;

const THREADS: u32 = 3;
/// So many pieces are free, and needed by each request.
const PIECES: u32 = 2;

/// Takes what is needed, piece by piece; gives back what it has if there is not enough.
fn take(free: &AtomicU32) -> bool {
    let take_one = || free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1)).is_ok();
    let taken = (0..PIECES).take_while(|_| take_one()).count() as u32;
    let is_enough = taken == PIECES;
    if !is_enough {
        free.fetch_add(taken, SeqCst);
    }
    is_enough
}

fn request(attempts: &Attempts, free: &AtomicU32) -> bool {
    let Attempted { result, met_others } = attempts.attempt(|| take(free));
    result || met_others && attempts.attempt_alone(|| take(free), |&taken| taken) == Some(true)
}

#[test]
fn the_last_memory_serves_one_of_several_requests() {
    schedules::explore(|_| {
        let shared = Arc::new((Attempts::default(), AtomicU32::new(PIECES)));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (attempts, free) = &*shared;
                    request(attempts, free)
                })
            })
            .collect();
        let served = threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(()));
        assert_eq!(served.count(), 1);
    });
}
