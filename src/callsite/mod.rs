//! Call sites: where in the program a call was made. The stream of events asks for them while a
//! profile or debugging wants them.
//!
//! | file | what it does |
//! |---|---|
//! | `given` | names that the caller passes in place of a stack |
//! | `native` | return addresses |
//! | `names` | their functions, files and lines |
//! | `python` | Python's frames, of any CPython from 3.9 on |
//! | `global_lock` | releases Python's global lock while a driver call blocks |
//! | `interpreter` | the functions of CPython that are used, and where it keeps its frames |
//! | `torch` | whether PyTorch made the call |
//!
//! `GENESIS_CALL_SITES` chooses the stack:
//!
//! | value | stack |
//! |---|---|
//! | `python`, the default | Python's frames; native frames in a thread that runs no Python code |
//! | `native` | native frames, also in Python programs |
//! | `all` | native frames up to the interpreter's, then Python's |
//!
//! Threads without Python code are those of C programs and those in which PyTorch runs backward
//! passes; their native stack names the operator.
//!
//! A stack becomes words, and `observe::SiteTable` numbers it. A known stack costs no host
//! allocation and no lock. A word is a native address, the number of a Python frame (bit 63 set)
//! or the number of a given name (bit 62 set); no address of a program has either bit.
//!
//! The cost of a stack seen before (`cargo bench --bench call_sites`, on a busy machine of two
//! cores; allocating and freeing a block under a profile took 120 ns without a site):
//!
//! | stack | nanoseconds |
//! |---|---|
//! | 5, 20, 60 frames of Python 3.11, 3.13, 3.14 or 3.15 | 25–40, 60–150, 200–230 |
//! | 5, 20, 60 frames of Python 3.10, lock not held | 3400, 3200, 6100; 630 with it held |
//! | 5, 20, 60 frames of Python 3.14 without a global lock | 3000, 3600, 5400 |
//! | 32 native frames | 110 |
//!
//! A native stack that a thread has not walked before takes 6 to 10 microseconds.
//!
//! No lock of the heap may be held here: asking an interpreter may take its lock.
#![allow(unsafe_code)]

mod given;
mod global_lock;
mod interpreter;
mod names;
mod native;
mod python;
mod torch;

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use genesis_profile::model::{Frame, Site};

use once_cell::sync::OnceCell;

pub(crate) use given::under;
pub(crate) use global_lock::without_lock;
pub(crate) use torch::Caller;

use crate::config::CallSites;
use crate::observe::{EventStream, OTHERS, SiteTable, UNKNOWN};
use crate::process::fork;

/// The stream of events that call sites are found for.
static EVENTS: OnceCell<&EventStream> = OnceCell::new();
static SITES: SiteTable = SiteTable::new();
static CHOICE: AtomicU8 = AtomicU8::new(CallSites::Python as u8);

/// Marks a word as the number of a Python frame, or as a place in Python's code.
const PYTHON: u64 = 1 << 63;
/// The longest stack: native frames and Python's.
const MOST_WORDS: usize = native::MOST_FRAMES + python::MOST_FRAMES;

/// Has `events`, the one stream of the process, find call sites here, of the kind `choice`.
pub(crate) fn install(events: &'static EventStream, choice: CallSites) {
    let _ = EVENTS.set(events);
    choose(choice);
    // The first search, before several threads search at once.
    let _ = interpreter::get();
    events.set_site_finder(find);
    events.set_site_namer(site);
}

/// Finds call sites of the kind `choice` from now on.
pub(crate) fn choose(choice: CallSites) {
    CHOICE.store(choice as u8, Relaxed);
    if let Some(events) = EVENTS.get() {
        events.set_sites_off(choice == CallSites::Off);
    }
}

/// The number of the call site of this thread; 0 if it cannot be known. No lock may be held.
fn find() -> u32 {
    let choice = CHOICE.load(Relaxed);
    let mut words = [0; MOST_WORDS];
    // A forked child is refused; walking the stack there may wait for a lock for ever.
    if choice == CallSites::Off as u8 || fork::is_child() {
        return UNKNOWN;
    }
    if let Some(words) = given::words() {
        return SITES.intern(&words);
    }
    if choice == CallSites::Native as u8 {
        let count = native::capture(&mut words[..native::MOST_FRAMES]);
        return SITES.intern(&words[..count]);
    }
    if choice == CallSites::Python as u8
        && let Some(site) = python::find(&mut words, 0)
    {
        return site;
    }
    let count = native::capture(&mut words[..native::MOST_FRAMES]);
    if choice == CallSites::All as u8
        && let Some(site) = python::find(&mut words, count)
    {
        return site;
    }
    SITES.intern(&words[..count])
}

/// Every call site found so far, by its number. Naming new native ones takes milliseconds.
pub(crate) fn sites() -> Vec<Site> {
    name(&(0..SITES.len() as u32).collect::<Vec<_>>())
}

/// The call site with this number.
pub(crate) fn site(number: u32) -> Site {
    name(&[number]).pop().unwrap_or_default()
}

fn name(numbers: &[u32]) -> Vec<Site> {
    let stacks: Vec<&[u64]> =
        numbers.iter().map(|number| SITES.stack(*number).unwrap_or_default()).collect();
    let is_python = |word: &u64| *word & PYTHON != 0;
    let by_language = |stack: &&'static [u64]| {
        stack.split_at(stack.iter().position(is_python).unwrap_or(stack.len()))
    };
    let parts: Vec<_> = stacks.iter().map(by_language).collect();
    let natives: Vec<&[u64]> = parts
        .iter()
        .map(|(native, python)| match python {
            _ if given::is_given(native) => &[][..],
            [] => *native,
            _ => before_the_interpreter(native),
        })
        .collect();
    let named = names::name(&natives).into_iter().zip(&parts);
    let named = named.map(|(mut frames, (_, python))| {
        frames.extend(python::name(python));
        Site { frames }
    });
    let others = Frame { function: "others".to_owned(), ..Frame::default() };
    let with_others = |((number, stack), site): ((&u32, &&[u64]), Site)| match *number {
        OTHERS => Site { frames: vec![others.clone()] },
        _ if given::is_given(stack) => Site { frames: given::name(stack) },
        _ => site,
    };
    numbers.iter().zip(&stacks).zip(named).map(with_others).collect()
}

/// The frames of a native stack inside the interpreter's: those outside say less than Python's
/// frames do.
fn before_the_interpreter(stack: &[u64]) -> &[u64] {
    let end = stack.iter().position(|address| interpreter::contains(*address as usize));
    &stack[..end.unwrap_or(stack.len())]
}
