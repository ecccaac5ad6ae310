//! Where in the program a call was made: what the stream of events asks for while somebody
//! seeks call sites.
//!
//! | file | what it does |
//! |---|---|
//! | `given` | names that the caller gives in place of a stack |
//! | `native` | return addresses |
//! | `names` | what they are called |
//! | `python` | Python's frames, of any CPython from 3.9 on |
//! | `global_lock` | lets go of Python's global lock while a driver call blocks |
//! | `interpreter` | the functions of CPython that are used, and where it keeps its frames |
//!
//! `GENESIS_CALL_SITES` says what is looked for. `python`, the default: the frames of the Python
//! code that this thread runs; the native stack where there is none, as in C programs and in
//! the threads in which PyTorch runs backward passes, whose native stack says which operator it
//! is. `native`: the native stack, of Python programs too. `all`: both, the native frames up to
//! the interpreter's and then Python's.
//!
//! A stack is found, made into words and numbered by a table (`observe::SiteTable`); one that is
//! known costs no host allocation and no lock. Words are native addresses, numbers of
//! Python frames marked by the highest bit, and numbers of given names marked by the next one: no
//! address of a program has either.
//!
//! What one costs, of a stack seen before (`cargo bench --bench call_sites`, on a busy machine of two
//! cores; without a site a block allocated and freed under a profile took 120 ns):
//!
//! | stack | nanoseconds |
//! |---|---|
//! | 5, 20, 60 frames of Python 3.11 or 3.13 | 25–40, 90–150, 230 |
//! | 5, 20, 60 frames of Python 3.10, lock given up | 3400, 3200, 6100; 630 with it held |
//! | 32 native frames | 110 |
//!
//! A native stack that a thread has not walked before takes 6 to 10 microseconds.

mod given;
mod global_lock;
mod interpreter;
mod names;
mod native;
mod python;

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use genesis_profile::model::{Frame, Site};

pub(super) use given::under;
pub(super) use global_lock::without_lock;

use super::instance::EVENTS;
use crate::config::CallSites;
use crate::observe::{OTHERS, SiteTable, UNKNOWN};

static SITES: SiteTable = SiteTable::new();
static CHOICE: AtomicU8 = AtomicU8::new(CallSites::Python as u8);

/// What marks a word as the number of a Python frame, or as a place in Python's code.
const PYTHON: u64 = 1 << 63;
/// The longest stack: native frames and Python's.
const MOST_WORDS: usize = native::MOST_FRAMES + python::MOST_FRAMES;

/// Has the stream of events find call sites here, of the kind that is chosen.
pub(super) fn install(choice: CallSites) {
    choose(choice);
    // The first search, before threads come here together.
    let _ = interpreter::get();
    EVENTS.set_site_finder(find);
    EVENTS.set_site_namer(site);
}

/// From now on sites of this kind are looked for.
pub(super) fn choose(choice: CallSites) {
    CHOICE.store(choice as u8, Relaxed);
    EVENTS.set_sites_off(choice == CallSites::Off);
}

/// The number of the call site of this thread; 0 if it cannot be known. No lock may be held.
pub(super) fn find() -> u32 {
    let choice = CHOICE.load(Relaxed);
    let mut words = [0; MOST_WORDS];
    if choice == CallSites::Off as u8 {
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

/// Every call site found so far, by its number. Takes a while where native ones are new.
pub fn sites() -> Vec<Site> {
    name(&(0..SITES.len() as u32).collect::<Vec<_>>())
}

/// The call site with this number.
pub fn site(number: u32) -> Site {
    name(&[number]).pop().unwrap_or_default()
}

fn name(numbers: &[u32]) -> Vec<Site> {
    let stacks: Vec<&[u64]> =
        numbers.iter().map(|number| SITES.stack(*number).unwrap_or_default()).collect();
    let is_python = |word: &u64| *word & PYTHON != 0;
    let split = |stack: &&'static [u64]| {
        stack.split_at(stack.iter().position(is_python).unwrap_or(stack.len()))
    };
    let parts: Vec<_> = stacks.iter().map(split).collect();
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

/// The innermost part of a native stack: what the interpreter was called from says less than
/// Python's frames do.
fn before_the_interpreter(stack: &[u64]) -> &[u64] {
    let end = stack.iter().position(|address| interpreter::contains(*address as usize));
    &stack[..end.unwrap_or(stack.len())]
}
