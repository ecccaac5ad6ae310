//! Threads by number.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::sync::thread_local;

/// The calling thread's number: from 1, and never reused in this process. Valid for as long as the
/// thread runs, because the variable has no destructor.
pub fn number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Relaxed) + 1);
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn each_thread_has_one_of_its_own() {
        assert_eq!(number(), number());
        assert_ne!(number(), std::thread::spawn(number).join().unwrap());
    }
}
