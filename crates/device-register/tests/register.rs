//! Registers and those who write them: files that are none, files that change, and members that die.
//!
//! Members are open files, so several live in one process as well as in several.

#[allow(dead_code)]
mod support;

use std::fs::{self, OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use device_register::{Card, Entry, Refused, Register, read, remove_unused};
use support::{Random, Scratch, card, entry};

#[test]
fn members_see_each_other_and_an_entry_ends_with_its_member() {
    let scratch = Scratch::new("members");
    let one = Register::join(&scratch.path, &card(), &entry(1)).unwrap();
    assert_eq!(one.others().unwrap(), []);
    let two = Register::join(&scratch.path, &card(), &entry(2)).unwrap();
    let three = Register::join(&scratch.path, &card(), &entry(3)).unwrap();
    assert_eq!(one.others().unwrap(), [entry(2), entry(3)]);
    let changed = Entry { charged_bytes: 9, ..entry(2) };
    two.write(&changed).unwrap();
    assert_eq!(three.others().unwrap(), [entry(1), changed]);
    drop(two);
    assert_eq!(one.others().unwrap(), [entry(3)]);
    // Its place is the next one's, and what was there is not.
    let four = Register::join(&scratch.path, &card(), &entry(4)).unwrap();
    assert_eq!(one.others().unwrap(), [entry(4), entry(3)]);
    assert_eq!(read(&scratch.path).unwrap(), (card(), vec![entry(1), entry(4), entry(3)]));
    drop((one, three, four));
    assert_eq!(read(&scratch.path).unwrap().1, []);
}

#[test]
fn there_is_room_for_so_many_and_no_more() {
    let scratch = Scratch::new("full");
    let join = |number| Register::join(&scratch.path, &card(), &entry(number));
    let mut members: Vec<Register> =
        (0..device_register::MOST_ENTRIES).map(|number| join(number).unwrap()).collect();
    assert!(matches!(join(999).unwrap_err(), Refused::Full));
    assert_eq!(members[0].others().unwrap().len(), members.len() - 1);
    members.swap_remove(7);
    members.push(join(999).unwrap());
    assert_eq!(read(&scratch.path).unwrap().1.len(), members.len());
}

#[test]
fn only_a_file_of_this_user_alone_is_taken() {
    let scratch = Scratch::new("unsafe");
    let refused = || Register::join(&scratch.path, &card(), &entry(1)).unwrap_err();
    let make = |mode| {
        let _ = fs::remove_file(&scratch.path);
        drop(Register::join(&scratch.path, &card(), &entry(1)).unwrap());
        fs::set_permissions(&scratch.path, Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o640, 0o602, 0o666, 0o610] {
        make(mode);
        assert!(matches!(refused(), Refused::NotSafe), "{mode:o}");
    }
    make(0o600);
    let target = scratch.folder.join("target");
    fs::rename(&scratch.path, &target).unwrap();
    symlink(&target, &scratch.path).unwrap();
    assert!(matches!(refused(), Refused::NotSafe));
    fs::remove_file(&scratch.path).unwrap();
    fs::create_dir(&scratch.path).unwrap();
    assert!(matches!(refused(), Refused::NotSafe));
    fs::remove_dir(&scratch.path).unwrap();
    let _listener = UnixListener::bind(&scratch.path).unwrap();
    assert!(matches!(refused(), Refused::NotSafe));
    fs::remove_file(&scratch.path).unwrap();
    support::make_pipe(&scratch.path);
    assert!(matches!(refused(), Refused::NotSafe), "a pipe without a reader is not waited for");
}

#[test]
fn a_file_of_something_else_stays_as_it_is() {
    let scratch = Scratch::new("foreign");
    for contents in [&b""[..], b"notes", &[0; 128], &[0xFF; 4096]] {
        fs::write(&scratch.path, contents).unwrap();
        fs::set_permissions(&scratch.path, Permissions::from_mode(0o600)).unwrap();
        let refused = Register::join(&scratch.path, &card(), &entry(1)).unwrap_err();
        assert!(matches!(refused, Refused::Foreign), "{refused}");
        assert!(matches!(read(&scratch.path).unwrap_err(), Refused::Foreign));
        assert_eq!(fs::read(&scratch.path).unwrap(), contents);
    }
    fs::remove_file(&scratch.path).unwrap();
    drop(Register::join(&scratch.path, &card(), &entry(1)).unwrap());
    let other = Card { uuid: [9; 16], ..card() };
    let refused = Register::join(&scratch.path, &other, &entry(1)).unwrap_err();
    assert!(matches!(refused, Refused::Foreign), "{refused}");
}

#[test]
fn another_version_is_refused_while_it_is_used_and_replaced_afterwards() {
    let scratch = Scratch::new("version");
    let used = Register::join(&scratch.path, &card(), &entry(1)).unwrap();
    let file = OpenOptions::new().write(true).open(&scratch.path).unwrap();
    file.write_all_at(&7u32.to_le_bytes(), 16).unwrap();
    let refused = Register::join(&scratch.path, &card(), &entry(2)).unwrap_err();
    assert!(matches!(refused, Refused::OtherVersion(7)), "{refused}");
    drop(used);
    let next = Register::join(&scratch.path, &card(), &entry(2)).unwrap();
    assert_eq!(read(&scratch.path).unwrap().1, [entry(2)]);
    drop(next);
}

#[test]
fn a_file_that_nobody_uses_is_removed_and_whoever_joins_meanwhile_is_not_lost() {
    let scratch = Scratch::new("unused");
    let one = Register::join(&scratch.path, &card(), &entry(1)).unwrap();
    assert!(!remove_unused(&scratch.path));
    let two = Register::join(&scratch.path, &card(), &entry(2)).unwrap();
    assert!(!one.remove_if_alone() && !two.remove_if_alone());
    drop(two);
    assert!(one.remove_if_alone() && !scratch.path.exists());
    drop(Register::join(&scratch.path, &card(), &entry(1)).unwrap());
    assert!(remove_unused(&scratch.path) && !remove_unused(&scratch.path));
    let is_over = AtomicBool::new(false);
    let (path, is_over) = (&scratch.path, &is_over);
    thread::scope(|scope| {
        let _over = Over(is_over);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                remove_unused(path);
            }
        });
        for _ in 0..support::some_or_all(500, 50_000) {
            let one = Register::join(path, &card(), &entry(1)).unwrap();
            let two = Register::join(path, &card(), &entry(2)).unwrap();
            assert_eq!(one.others().unwrap(), [entry(2)]);
            assert_eq!(two.others().unwrap(), [entry(1)]);
        }
    });
}

/// Sets it when it is dropped, also by a panic: other threads wait for it.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The process that removes the file may not run for a while.
#[test]
fn whoever_joins_waits_for_a_removal_that_takes_its_time() {
    let scratch = Scratch::new("slow");
    drop(Register::join(&scratch.path, &card(), &entry(1)).unwrap());
    let file = OpenOptions::new().read(true).write(true).open(&scratch.path).unwrap();
    // SAFETY: all of its fields are numbers.
    let mut all: libc::flock = unsafe { std::mem::zeroed() };
    all.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: the descriptor is open, and `all` is live.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &all) }, 0);
    thread::scope(|scope| {
        let joined = scope.spawn(|| Register::join(&scratch.path, &card(), &entry(2)));
        thread::sleep(Duration::from_millis(50));
        fs::remove_file(&scratch.path).unwrap();
        drop(file);
        let one = joined.join().unwrap().unwrap();
        assert_eq!(read(&scratch.path).unwrap().1, [entry(2)]);
        drop(one);
    });
}

#[test]
fn a_file_that_is_cut_short_or_removed_stops_nobody() {
    let scratch = Scratch::new("cut");
    let one = Register::join(&scratch.path, &card(), &entry(1)).unwrap();
    let two = Register::join(&scratch.path, &card(), &entry(2)).unwrap();
    OpenOptions::new().write(true).open(&scratch.path).unwrap().set_len(0).unwrap();
    assert_eq!(one.others().unwrap(), []);
    two.write(&entry(2)).unwrap();
    assert_eq!(one.others().unwrap(), [entry(2)]);
    assert!(matches!(read(&scratch.path).unwrap_err(), Refused::Foreign));
    fs::remove_file(&scratch.path).unwrap();
    assert_eq!(one.others().unwrap(), [entry(2)]);
    let three = Register::join(&scratch.path, &card(), &entry(3)).unwrap();
    assert_eq!(three.others().unwrap(), []);
}

/// Bytes that somebody changes: entries are those of members, or are not there.
#[test]
fn changed_bytes_are_never_taken_for_an_entry() {
    let scratch = Scratch::new("changed");
    let one = Register::join(&scratch.path, &card(), &entry(1)).unwrap();
    let _two = Register::join(&scratch.path, &card(), &entry(2)).unwrap();
    let whole = fs::read(&scratch.path).unwrap();
    let file = OpenOptions::new().write(true).open(&scratch.path).unwrap();
    let mut random = Random(1);
    for _ in 0..support::some_or_all(3_000, 300_000) {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
        bytes.resize(random.below(2 * whole.len()), random.below(256) as u8);
        file.set_len(0).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let others = one.others().unwrap();
        assert!(others.is_empty() || others == [entry(2)], "{others:?}");
        match read(&scratch.path) {
            Ok((found, entries)) => {
                assert_eq!(found, card());
                assert!(entries.iter().all(|found| *found == entry(1) || *found == entry(2)));
            }
            Err(refused) => {
                assert!(
                    matches!(refused, Refused::Foreign | Refused::OtherVersion(_)),
                    "{refused}"
                );
            }
        }
    }
}

#[test]
fn threads_join_write_and_leave_at_once_and_no_half_of_an_entry_is_seen() {
    let scratch = Scratch::new("threads");
    let rounds = support::some_or_all(300, 20_000);
    thread::scope(|scope| {
        for member in 1..=4u32 {
            let path = &scratch.path;
            scope.spawn(move || {
                for round in 0..rounds {
                    let own = Entry { charged_bytes: round, live_bytes: round, ..entry(member) };
                    let register = Register::join(path, &card(), &own).unwrap();
                    register.exclusively(|| register.write(&own)).unwrap();
                    for other in register.others().unwrap() {
                        assert_ne!(other.process, member);
                        assert_eq!(other.charged_bytes, other.live_bytes);
                        assert_eq!(other.program, entry(other.process).program);
                    }
                }
            });
        }
    });
    assert_eq!(read(&scratch.path).unwrap().1, []);
}

/// Nobody waits for long for one who holds the lock of sums, and is not let go on.
#[test]
fn a_sum_is_waited_for_a_moment_only() {
    let scratch = Scratch::new("sums");
    let one = Register::join(&scratch.path, &card(), &entry(1)).unwrap();
    let two = Register::join(&scratch.path, &card(), &entry(2)).unwrap();
    let ran = one.exclusively(|| two.exclusively(|| one.exclusively(|| true)));
    assert!(ran);
}
