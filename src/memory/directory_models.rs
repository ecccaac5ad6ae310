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
        directory.forget(start..end, SizeClass::Large);
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
        directory.forget(gone..gone + 4096, SizeClass::Large);
        other.join().unwrap();
        assert_eq!(directory.get(gone), None);
        assert_eq!(directory.get(behind), Some(OTHER));
    });
}

/// A leaf goes while it is read, and serves addresses of two threads that come at once. A reader sees
/// what is or was there, or an entry of the leaf's next use.
#[test]
fn leaves_that_are_used_again_have_what_was_set_last() {
    const LAST: Entry = Entry { lane: 3, slot: 9 };
    schedules::explore(|_| {
        let directory = Arc::new(Directory::new());
        let (gone, next) = (5 * MIB..5 * MIB + small::LEAF_BYTES, 8 * MIB);
        directory.set(gone.start, SizeClass::Small, ONE);
        let reader = {
            let (directory, address) = (Arc::clone(&directory), gone.start);
            shuttle::thread::spawn(move || {
                for _ in 0..3 {
                    let seen = directory.get(address);
                    assert!([None, Some(ONE), Some(OTHER)].contains(&seen), "{seen:?}");
                }
            })
        };
        let other = {
            let directory = Arc::clone(&directory);
            shuttle::thread::spawn(move || directory.set(next + 512, SizeClass::Small, LAST))
        };
        directory.forget(gone.clone(), SizeClass::Small);
        directory.set(next, SizeClass::Small, OTHER);
        reader.join().unwrap();
        other.join().unwrap();
        assert_eq!(directory.get(gone.start), None);
        assert_eq!(directory.get(next), Some(OTHER));
        assert_eq!(directory.get(next + 512), Some(LAST));
    });
}

/// The last range of a leaf goes while another lane's range comes to it.
#[test]
fn a_leaf_that_is_shared_stays_for_a_range_that_comes() {
    schedules::explore(|_| {
        let directory = Arc::new(Directory::new());
        let (gone, next) = (5 * MIB..5 * MIB + 4096, 5 * MIB + 4096..5 * MIB + 8192);
        directory.expect(&gone, SizeClass::Small);
        directory.set(gone.start, SizeClass::Small, ONE);
        let other = {
            let (directory, next) = (Arc::clone(&directory), next.clone());
            shuttle::thread::spawn(move || {
                directory.expect(&next, SizeClass::Small);
                directory.set(next.start, SizeClass::Small, OTHER);
                assert_eq!(directory.get(next.start), Some(OTHER));
            })
        };
        directory.forget(gone, SizeClass::Small);
        other.join().unwrap();
        assert_eq!(directory.get(next.start), Some(OTHER));
        directory.forget(next.clone(), SizeClass::Small);
        assert_eq!(directory.get(next.start), None);
    });
}
