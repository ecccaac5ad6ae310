//! What the race detector found: counted, kept as text, printed once for each kind.

use std::collections::HashSet;
use std::mem::discriminant;
use std::sync::{Mutex, PoisonError};

use simgpu::{Machine, Violation};

/// How many are kept as text; all are counted.
const MOST_KEPT: usize = 1000;

/// The violations of the process.
#[derive(Debug)]
pub(crate) struct Violations {
    aborts: bool,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    count: u64,
    texts: Vec<String>,
    printed: HashSet<std::mem::Discriminant<Violation>>,
}

impl Violations {
    /// With `aborts`, the first one ends the process.
    pub(crate) fn new(aborts: bool) -> Self {
        Self { aborts, found: Mutex::default() }
    }

    /// Collects what `machine` found after the last call.
    #[cold]
    pub(crate) fn collect(&self, machine: &Machine) {
        let fresh = machine.take_violations();
        if fresh.is_empty() {
            return;
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for violation in fresh {
            found.count += 1;
            if found.printed.insert(discriminant(&violation)) {
                eprintln!("simcuda: {violation}");
            }
            if found.texts.len() < MOST_KEPT {
                found.texts.push(violation.to_string());
            }
        }
        if self.aborts {
            std::process::abort();
        }
    }

    /// How many there were after the last [`Self::clear`].
    pub(crate) fn count(&self) -> u64 {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Their texts, a line each.
    pub(crate) fn text(&self) -> String {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).texts.join("\n")
    }

    /// Forgets them; the next of each kind is printed again.
    pub(crate) fn clear(&self) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Found::default();
    }
}
