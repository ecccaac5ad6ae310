//! Annotations: ranges and marks with which a program names its phases.
//!
//! A profile or a recording that the environment asks for begins with the heap, which the first
//! allocation makes. What is annotated before is kept, and becomes the first that they hear.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::EVENTS;
use crate::base::lock::{Lock, rank};
use crate::base::{DeviceOrdinal, Result, thread};
use crate::observe::{Action, Event};
use crate::process::fork;

/// At most so many are kept: the first ones.
const MOST_KEPT: usize = 4096;

/// The heap has been made.
static IS_MADE: AtomicBool = AtomicBool::new(false);
/// Those made before, in order.
static KEPT: Lock<Vec<Kept>, { rank::LEAF }> = Lock::new(Vec::new());

/// An annotation that is kept, with the number of its thread. Its name gets a number only if it is
/// passed on: a profile has all names that have one.
struct Kept {
    action: Action,
    name: Option<String>,
    thread: u64,
}

/// Notes the annotation `action`, if the stream of events has a consumer, or may get one with the
/// heap.
pub(crate) fn annotate(action: Action, name: Option<&str>) -> Result<()> {
    fork::refuse_child()?;
    // NVTX calls it, too.
    let _early = fork::early_call();
    if EVENTS.is_on() {
        note(action, name, thread::number());
    } else if !IS_MADE.load(Relaxed) {
        let annotation = Kept { action, name: name.map(str::to_owned), thread: thread::number() };
        let mut kept = KEPT.lock();
        // Read again: afterwards nobody looks for them.
        if !IS_MADE.load(Relaxed) && kept.len() < MOST_KEPT {
            kept.push(annotation);
        }
    }
    Ok(())
}

/// Returns true if an annotation may come to be heard.
pub(super) fn are_wanted() -> bool {
    EVENTS.is_on() || !IS_MADE.load(Relaxed)
}

/// The heap is made, and what listens to it has begun: passes on what was annotated before.
pub(super) fn pass_on() {
    let kept = {
        let mut kept = KEPT.lock();
        IS_MADE.store(true, Relaxed);
        std::mem::take(&mut *kept)
    };
    if EVENTS.is_on() {
        for Kept { action, name, thread } in kept {
            note(action, name.as_deref(), thread);
        }
    }
}

fn note(action: Action, name: Option<&str>, thread: u64) {
    let name = name.map_or(0, |name| EVENTS.names().number(name));
    EVENTS.note(Event { name, stream: thread, ..Event::new(action, DeviceOrdinal(0)) });
}
