//! Names that a caller passes in place of a stack: a framework may know better than its stack
//! what an allocation is for.
//!
//! They hold within one call, in the thread that makes it, and only while call sites are wanted.
//! A name is numbered in the table of annotations and bounded as those are.

use std::cell::Cell;

use genesis_profile::model::Frame;

use super::EVENTS;
use crate::observe::EventStream;

/// Marks a word as the number of a name.
const GIVEN: u64 = 1 << 62;

thread_local! {
    /// The words of the names that hold in this thread, innermost first; 0 for none.
    static NAMES: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

/// Runs `body`, whose call site for `events` is `names`, innermost first.
pub(crate) fn under<T>(events: &EventStream, names: [&str; 2], body: impl FnOnce() -> T) -> T {
    /// Removes the names, also if `body` panics.
    struct Given;
    impl Drop for Given {
        fn drop(&mut self) {
            let _ = NAMES.try_with(|words| words.set([0; 2]));
        }
    }
    if !events.seeks_sites() {
        return body();
    }
    let words = names.map(|name| GIVEN | u64::from(events.names().number(name)));
    // A thread that is ending has no names.
    let _ = NAMES.try_with(|given| given.set(words));
    let _given = Given;
    body()
}

/// The words of the names of this thread's call, if it has any.
pub(super) fn words() -> Option<[u64; 2]> {
    let words = NAMES.try_with(Cell::get).unwrap_or_default();
    (words[0] != 0).then_some(words)
}

/// Returns true if the words of a stack are names.
pub(super) fn is_given(stack: &[u64]) -> bool {
    stack.first().is_some_and(|word| word >> 62 == 1)
}

/// The frames of such a stack.
pub(super) fn name(stack: &[u64]) -> Vec<Frame> {
    let names = EVENTS.get().map(|events| events.names().all()).unwrap_or_default();
    let named = |word: &u64| {
        let number = (word & !GIVEN) as usize;
        let function = names.get(number).map(|name| name.to_string()).unwrap_or_default();
        Frame { function, ..Frame::default() }
    };
    stack.iter().map(named).filter(|frame| !frame.function.is_empty()).collect()
}
