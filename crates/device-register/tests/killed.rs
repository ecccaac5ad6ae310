//! Members that are killed at each system call of their lives. What they write changes by system
//! calls alone, so there is no other moment to be killed at.
//!
//! One test, because a child that is forked meanwhile would hold the files of another.

#[allow(dead_code)]
mod support;

use std::fs;

use device_register::{Entry, Register, read};
use support::{Scratch, card, entry};

#[test]
fn whoever_is_killed_at_any_call_leaves_nothing_behind() {
    a_member_that_is_killed_at_any_call_leaves_nothing_behind();
    a_maker_that_is_killed_at_any_call_leaves_a_whole_file_or_none();
}

fn a_member_that_is_killed_at_any_call_leaves_nothing_behind() {
    let scratch = Scratch::new("killed");
    let one = Register::join(&scratch.path, &card(), &entry(1)).unwrap();
    let mut lives = 0;
    loop {
        let is_over = support::live_until(lives, || {
            let own = Register::join(&scratch.path, &card(), &entry(2)).unwrap();
            let sum = own.exclusively(|| own.others().unwrap().len() as u64);
            let changed = Entry { charged_bytes: sum, ..entry(2) };
            own.write(&changed).unwrap();
            own.exclusively(|| own.write(&entry(2)).unwrap());
        });
        assert_eq!(one.others().unwrap(), [], "after {lives} calls");
        let next = Register::join(&scratch.path, &card(), &entry(3)).unwrap();
        next.exclusively(|| ());
        assert_eq!(one.others().unwrap(), [entry(3)]);
        if is_over {
            break;
        }
        lives += 1;
    }
    assert!(lives > 20, "the life had {lives} calls");
    let left: Vec<_> = fs::read_dir(&scratch.folder).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// The same where the file is made: it is whole, or not there.
fn a_maker_that_is_killed_at_any_call_leaves_a_whole_file_or_none() {
    let mut lives = 0;
    loop {
        let scratch = Scratch::new("maker");
        let is_over = support::live_until(lives, || {
            drop(Register::join(&scratch.path, &card(), &entry(2)).unwrap());
        });
        if scratch.path.exists() {
            assert_eq!(read(&scratch.path).unwrap(), (card(), vec![]), "after {lives} calls");
        }
        let joined = Register::join(&scratch.path, &card(), &entry(1)).unwrap();
        assert_eq!(joined.others().unwrap(), []);
        if is_over {
            break;
        }
        lives += 1;
    }
    assert!(lives > 10, "the life had {lives} calls");
}
