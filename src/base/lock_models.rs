//! Locks under drawn schedules: one holder at a time, and each waiter has its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::base::sync::{OnceCell, schedules, waiting};

#[test]
fn one_thread_holds_a_lock_at_a_time() {
    schedules::explore(|_| {
        let lock = Arc::new(Lock::<u64, { rank::LANE }>::new(0));
        let add = |lock: &Lock<u64, { rank::LANE }>| {
            for _ in 0..3 {
                let mut count = lock.lock();
                let before = *count;
                waiting::yield_now();
                *count = before + 1;
            }
        };
        let others = [(), ()].map(|()| {
            let lock = Arc::clone(&lock);
            shuttle::thread::spawn(move || add(&lock))
        });
        add(&lock);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(*lock.lock(), 9);
    });
}

/// As when two threads use a device first: it is opened once, again after a failure, and neither
/// sees it half open.
#[test]
fn a_cell_is_set_once() {
    schedules::explore(|seed| {
        let (cell, tries) = (Arc::new(OnceCell::<u64>::new()), Arc::new(AtomicU64::new(0)));
        let is_first_refused = seed % 4 < 2;
        let open = move |cell: &OnceCell<u64>, tries: &AtomicU64| {
            let opened = cell.get_or_try_init(|| {
                let number = tries.fetch_add(1, Relaxed);
                waiting::yield_now();
                if number == 0 && is_first_refused { Err(()) } else { Ok(number) }
            });
            opened.copied()
        };
        let other = {
            let (cell, tries) = (Arc::clone(&cell), Arc::clone(&tries));
            shuttle::thread::spawn(move || open(&cell, &tries))
        };
        let answers = [open(&cell, &tries), other.join().unwrap()];
        let number = u64::from(is_first_refused);
        let refused = answers.iter().filter(|answer| answer.is_err()).count();
        assert_eq!(refused, usize::from(is_first_refused));
        assert!(answers.into_iter().flatten().all(|opened| opened == number), "{answers:?}");
    });
}
