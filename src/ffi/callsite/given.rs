//! Names that a caller gives in place of a stack: what an allocation is for, where a framework
//! knows that better than its stack tells.
//!
//! They are in force within one call, in the thread that makes it, and only while call sites are
//! sought. A name is numbered in the table of annotations, and so is bounded as those are.

use std::cell::Cell;

use genesis_profile::model::Frame;

use super::super::instance::EVENTS;

/// What marks a word as the number of a name.
const GIVEN: u64 = 1 << 62;

thread_local! {
    /// The words of the names in force in this thread, innermost first; 0: none.
    static NAMES: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

/// Runs `body`, whose call site is `names`, innermost first.
pub(in super::super) fn under<T>(names: [&str; 2], body: impl FnOnce() -> T) -> T {
    /// Takes the names away, however `body` ends.
    struct Given;
    impl Drop for Given {
        fn drop(&mut self) {
            let _ = NAMES.try_with(|words| words.set([0; 2]));
        }
    }
    if !EVENTS.seeks_sites() {
        return body();
    }
    let words = names.map(|name| GIVEN | u64::from(EVENTS.names().number(name)));
    // A thread that is ending gives no names.
    let _ = NAMES.try_with(|given| given.set(words));
    let _given = Given;
    body()
}

/// The site that is given to this thread's call, if any is.
pub(super) fn words() -> Option<[u64; 2]> {
    let words = NAMES.try_with(Cell::get).unwrap_or_default();
    (words[0] != 0).then_some(words)
}

/// Whether a stack is made of names.
pub(super) fn is_given(stack: &[u64]) -> bool {
    stack.first().is_some_and(|word| word >> 62 == 1)
}

/// The frames of such a stack.
pub(super) fn name(stack: &[u64]) -> Vec<Frame> {
    let names = EVENTS.names().all();
    let named = |word: &u64| {
        let number = (word & !GIVEN) as usize;
        let function = names.get(number).map(|name| name.to_string()).unwrap_or_default();
        Frame { function, ..Frame::default() }
    };
    stack.iter().map(named).filter(|frame| !frame.function.is_empty()).collect()
}
