//! The directory's readers and writers under drawn schedules.

use std::sync::Arc;

use super::*;
use crate::base::sync::schedules;

const ONE: Entry = Entry { lane: 1, slot: 1 };
const OTHER: Entry = Entry { lane: 2, slot: 7 };

/// A reader sees an entry that was there at some moment of its call, or none; afterwards the latest.
#[test]
fn readers_see_what_was_set() {
    schedules::explore(|_| {
        let directory = Arc::new(Directory::new());
        let (start, end) = (5 * MIB + 512, 7 * MIB);
        let reader = {
            let directory = Arc::clone(&directory);
            shuttle::thread::spawn(move || {
                let seen = [(); 4].map(|()| directory.get(start));
                let known = [None, Some(ONE), Some(OTHER)];
                assert!(seen.iter().all(|seen| known.contains(seen)), "{seen:?}");
                // The large block, then none, then the small one: never back to what is gone.
                let last = seen.iter().rposition(|seen| *seen == Some(ONE));
                let first = seen.iter().position(|seen| *seen == Some(OTHER));
                assert!(last.zip(first).is_none_or(|(large, small)| large < small), "{seen:?}");
            })
        };
        directory.set(start, SizeClass::Large, ONE);
        directory.forget(start..end);
        directory.set(start, SizeClass::Small, OTHER);
        reader.join().unwrap();
        assert_eq!(directory.get(start), Some(OTHER));
    });
}

/// One lane's addresses go while another lane's block, which begins in the same mebibyte, comes.
#[test]
fn a_block_that_comes_beside_what_is_forgotten_stays() {
    schedules::explore(|_| {
        let directory = Arc::new(Directory::new());
        let (gone, behind) = (5 * MIB + 512, 5 * MIB + 8192);
        directory.set(gone, SizeClass::Large, ONE);
        let other = {
            let directory = Arc::clone(&directory);
            shuttle::thread::spawn(move || directory.set(behind, SizeClass::Large, OTHER))
        };
        directory.forget(gone..gone + 4096);
        other.join().unwrap();
        assert_eq!(directory.get(gone), None);
        assert_eq!(directory.get(behind), Some(OTHER));
    });
}
