//! The thread that answers the questions of other processes, and writes into the registers, once a
//! second, what this one's program uses and what is cached.
//!
//! It exists from the first shared device on, for the rest of the process; a forked child has neither
//! the thread nor its mailbox. To give memory back it calls the driver, so from the process's exit
//! on it gives back nothing. **Locks**: `WORK` is held while the driver may be called; exit waits for it.

use std::io;
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::letters::{self, Answer, Question};
use super::member::{Member, lock};
use crate::heap::Heap;
use crate::instance;
use crate::process::{self, Mailbox, Sender, random_bytes};

/// The time between two writes of what is live and cached.
const INTERVAL: Duration = Duration::from_secs(1);
/// An exiting process waits at most so long for memory that is being given back.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(1);

/// The numbers by which this process is asked: of its door, and the key.
static DOOR: OnceCell<(u64, u64)> = OnceCell::new();
static MEMBERS: Mutex<Vec<Arc<Member>>> = Mutex::new(Vec::new());
static WORK: Mutex<Work> = Mutex::new(Work { is_over: false });

/// Whether the driver may be called.
struct Work {
    /// The process is exiting.
    is_over: bool,
}

/// Opens the mailbox and starts the thread, once; returns the numbers of its door and key.
pub(super) fn open() -> io::Result<(u64, u64)> {
    let start = || {
        let [number, key] = [random_bytes()?, random_bytes()?].map(u64::from_le_bytes);
        let mailbox = Mailbox::open(&letters::door(number))?;
        process::at_exit(end);
        let builder = Builder::new().name("genesis-share".to_owned());
        process::starting_threads(|| builder.spawn(move || serve_all(&mailbox, number, key)))?;
        Ok((number, key))
    };
    DOOR.get_or_try_init(start).copied()
}

/// Answers questions about the device of `member` from now on.
pub(super) fn serve(member: Arc<Member>) {
    lock(&MEMBERS).push(member);
}

/// The thread.
fn serve_all(mailbox: &Mailbox, door: u64, key: u64) {
    let mut due = Instant::now() + INTERVAL;
    let mut letter = [0; letters::BYTES];
    loop {
        match mailbox.receive(&mut letter, due.saturating_duration_since(Instant::now())) {
            Ok(Some(sender)) => answer(mailbox, &sender, &letter, (door, key)),
            Ok(None) => {}
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
        if Instant::now() >= due {
            due = Instant::now() + INTERVAL;
            write_levels();
        }
    }
}

fn answer(
    mailbox: &Mailbox,
    sender: &Sender,
    letter: &[u8; letters::BYTES],
    (door, key): (u64, u64),
) {
    let Some(question) = Question::decode(letter).filter(|question| question.key == key) else {
        return;
    };
    let bytes = give_back(&question).unwrap_or(0);
    // Who does not listen any more finds the memory at its next request.
    let _ = mailbox.answer(sender, &Answer { number: question.number, door, bytes }.encode());
}

/// Gives back what the question asks for, as far as it can be spared; returns the bytes.
fn give_back(question: &Question) -> Option<u64> {
    let members = lock(&MEMBERS).clone();
    let member = members.iter().find(|member| member.uuid == question.uuid)?;
    let bytes = member.spare_bytes(question);
    let work = lock(&WORK);
    if bytes == 0 || work.is_over {
        return None;
    }
    instance::heap_if_made().ok()??.give_back(member.device, bytes).ok()
}

/// Writes what is live and cached now.
fn write_levels() {
    let Ok(Some(heap)) = instance::heap_if_made() else { return };
    // Not in the loop's head, where the lock would be held to the loop's end.
    let members = lock(&MEMBERS).clone();
    for member in members {
        if let Some((live_bytes, cached_bytes)) = levels(heap, &member) {
            member.set_levels(live_bytes, cached_bytes);
        }
    }
}

fn levels(heap: &Heap, member: &Member) -> Option<(u64, u64)> {
    // It may not be open yet, and is not to be opened from here.
    heap.is_opened(member.device).then_some(())?;
    let statistics = heap.statistics(member.device).ok()?;
    Some((statistics.allocated_bytes.current, statistics.free_bytes))
}

/// At exit: leaves, and has nothing more given back.
fn end() {
    lock(&MEMBERS).iter().for_each(|member| member.leave());
    let deadline = Instant::now() + PATIENCE_AT_EXIT;
    loop {
        match WORK.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(work)) => return work.into_inner().is_over = true,
            Ok(mut work) => return work.is_over = true,
        }
    }
}
