//! Which requests of two recordings of one program are the same.
//!
//! The requests of each are a sequence of keys in which each loop is written once
//! ([`crate::loops`]), and the sequences are compared as texts are (E. W. Myers, "An O(ND)
//! Difference Algorithm", 1986), iteration by iteration where the program marks them: what both
//! have in one order is the same, and so are a few requests in one place of both, as many here as
//! there, with other keys. A key is the call site, the device, the stream, and whether the block is
//! freed by the next call. Where call sites are not known, the lifetime stands for them, if it is
//! short: programs do the same for another batch, so their short lifetimes are the same. It is
//! counted in calls of the program in which each loop is written once.
//!
//! An iteration that the other recording does not have is compared with its last one.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use crate::loops::{Place, Step, written_once};
use crate::program::{Call, Kind, Program};

/// A lifetime of more calls is of no kind of its own.
const LONGEST_LIFETIME: usize = 16;
/// So many requests in a row may have other keys.
const MOST_REPLACED: usize = 16;
/// After so long a comparison is no longer made as short as possible.
const PATIENCE: Duration = Duration::from_secs(2);
/// Is in the letter of a free: the others are those of its block's request.
const FREE: u32 = 1 << 31;

/// What tells requests apart.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    device: u8,
    stream: u16,
    is_freed_next: bool,
    kind: Kinds,
}

/// What kinds of requests there are.
#[derive(PartialEq, Eq, Hash)]
enum Kinds {
    Site(Rc<str>),
    Lifetime(usize),
    Unknown { is_kept: bool },
}

/// The keys of all recordings by number.
#[derive(Default)]
pub(crate) struct Keys {
    numbers: HashMap<Key, u32>,
}

/// The requests of a recording, in order.
pub(crate) struct Requests {
    /// The requests of each iteration, and those after the last.
    iterations: Vec<Vec<Place>>,
}

impl Keys {
    /// The requests of `program`, whose calls have the call sites `stacks`; empty if these are not
    /// known. All is one iteration if the program's are not `marked`.
    pub(crate) fn requests(
        &mut self,
        program: &Program,
        stacks: &[Rc<str>],
        marked: bool,
    ) -> Requests {
        let ends_of_blocks = ends_of_blocks(program);
        let key = |index: usize, call: &Call, kind: Kinds| Key {
            device: call.device,
            stream: call.stream,
            is_freed_next: ends_of_blocks.get(&index) == Some(&(index + 1)),
            kind,
        };
        let ends = program.iteration_ends.iter().filter(|_| marked).map(|end| end.calls);
        let mut ends = ends.peekable();
        let mut iterations = vec![Vec::new()];
        // The letter of the block in each slot.
        let mut letters = vec![0; program.slot_count];
        for (index, call) in program.calls.iter().enumerate() {
            while ends.next_if(|end| *end <= index).is_some() {
                iterations.push(Vec::new());
            }
            let slot = call.slot as usize;
            let step = match call.kind {
                Kind::Allocate => {
                    let kind = match stacks.get(index) {
                        Some(stack) => Kinds::Site(stack.clone()),
                        None => Kinds::Unknown { is_kept: !ends_of_blocks.contains_key(&index) },
                    };
                    letters[slot] = self.number(key(index, call, kind));
                    Step {
                        call: index,
                        letter: letters[slot],
                        requested_bytes: call.requested_bytes,
                    }
                }
                Kind::Free => {
                    Step { call: index, letter: letters[slot] | FREE, requested_bytes: 0 }
                }
                Kind::RecordStream | Kind::EmptyCache => continue,
            };
            if let Some(iteration) = iterations.last_mut() {
                iteration.push(step);
            }
        }
        iterations.extend(ends.map(|_| Vec::new()));
        let mut iterations: Vec<Vec<Place>> =
            iterations.iter().map(|steps| written_once(steps)).collect();
        if stacks.is_empty() {
            let lifetimes = lifetimes(&iterations, &ends_of_blocks);
            for place in iterations.iter_mut().flatten().filter(|place| place.letter & FREE == 0) {
                let index = place.calls[0];
                let lifetime = lifetimes.get(&index).copied().unwrap_or(LONGEST_LIFETIME);
                let kind = Kinds::Lifetime(lifetime.min(LONGEST_LIFETIME));
                place.letter = self.number(key(index, &program.calls[index], kind));
            }
        }
        iterations.iter_mut().for_each(|places| places.retain(|place| place.letter & FREE == 0));
        Requests { iterations }
    }

    fn number(&mut self, key: Key) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(key).or_insert(next)
    }
}

/// How many places after its own each block is freed, by the request's call.
fn lifetimes(iterations: &[Vec<Place>], ends: &HashMap<usize, usize>) -> HashMap<usize, usize> {
    let places = iterations.iter().flatten().enumerate();
    let numbers: HashMap<usize, usize> = places
        .flat_map(|(number, place)| place.calls.iter().map(move |call| (*call, number)))
        .collect();
    let lifetime =
        |(begin, end): (&usize, &usize)| Some((*begin, numbers[end].checked_sub(numbers[begin])?));
    ends.iter().filter_map(lifetime).collect()
}

/// The call that frees the block of each request, by the index of its call; blocks that stay live
/// are not in it.
pub(crate) fn ends_of_blocks(program: &Program) -> HashMap<usize, usize> {
    let mut begun = HashMap::new();
    let mut ends = HashMap::new();
    for (index, call) in program.calls.iter().enumerate() {
        match call.kind {
            Kind::Allocate => drop(begun.insert(call.slot, index)),
            Kind::Free => {
                if let Some(begin) = begun.remove(&call.slot) {
                    ends.insert(begin, index);
                }
            }
            Kind::RecordStream | Kind::EmptyCache => {}
        }
    }
    ends
}

impl Requests {
    /// The places of all requests.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.iterations.iter().flatten()
    }

    /// The places that are also in `other`, here and there.
    pub(crate) fn matched<'a>(&'a self, other: &'a Self) -> Vec<(&'a Place, &'a Place)> {
        let deadline = Instant::now() + PATIENCE;
        let letters =
            |places: &[Place]| places.iter().map(|place| place.letter).collect::<Vec<_>>();
        let mut matched = Vec::new();
        for (mine, others) in self.alike(other) {
            let algorithm = Algorithm::Myers;
            let (here, there) = (letters(mine), letters(others));
            for operation in capture_diff_slices_deadline(algorithm, &here, &there, Some(deadline))
            {
                let (old, new) = (operation.old_range(), operation.new_range());
                let is_same = match operation {
                    DiffOp::Equal { .. } => true,
                    DiffOp::Replace { .. } => is_replaced(&mine[old.clone()], &others[new.clone()]),
                    DiffOp::Delete { .. } | DiffOp::Insert { .. } => false,
                };
                if is_same {
                    matched.extend(mine[old].iter().zip(&others[new]));
                }
            }
        }
        matched
    }

    /// The iterations with those of `other` that they are compared with. The last of each is what
    /// follows the last mark.
    fn alike<'a>(&'a self, other: &'a Self) -> Vec<(&'a [Place], &'a [Place])> {
        let last = other.iterations.len() - 1;
        let pair = |(number, here): (usize, &'a Vec<Place>)| {
            let is_rest = number + 1 == self.iterations.len();
            let there = if is_rest { last } else { number.min(last - 1) };
            (&**here, &*other.iterations[there])
        };
        self.iterations.iter().enumerate().map(pair).collect()
    }
}

/// Whether places with other keys are the same: a few requests, as many here as there.
fn is_replaced(mine: &[Place], others: &[Place]) -> bool {
    let calls = |places: &[Place]| places.iter().map(|place| place.calls.len()).collect::<Vec<_>>();
    let (mine, others) = (calls(mine), calls(others));
    mine == others && mine.iter().sum::<usize>() <= MOST_REPLACED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Action, Record};

    /// A program of requests at `sites`, each freed at once, with an end of an iteration for `|`.
    fn matched(mine: &str, others: &str, has_sites: bool) -> Vec<(usize, usize)> {
        let mut keys = Keys::default();
        let marked = mine.contains('|') && others.contains('|');
        let mut requests = |text: &str| {
            let (mut records, mut stacks) = (Vec::new(), Vec::new());
            for (id, site) in text.chars().enumerate() {
                let id = id as u32;
                let record =
                    |action| Record { action, device: 0, stream: 0, id, requested_bytes: 8 };
                if site == '|' {
                    records.push(record(Action::IterationEnd));
                    continue;
                }
                records.push(record(Action::Allocate));
                // Without sites, a capital letter lives longer.
                if site.is_ascii_uppercase() {
                    records.push(record(Action::RecordStream));
                }
                records.push(record(Action::Free));
                let calls = if site.is_ascii_uppercase() { 3 } else { 2 };
                stacks.extend((0..calls).map(|_| Rc::<str>::from(site.to_string())));
            }
            let program = Program::prepare(&records).unwrap();
            keys.requests(&program, if has_sites { &stacks } else { &[] }, marked)
        };
        let (mine, others) = (requests(mine), requests(others));
        // The number of a request, by the index of its call.
        let number = |requests: &Requests, call: usize| {
            let calls = requests.places().flat_map(|place| &place.calls);
            calls.filter(|other| **other < call).count()
        };
        let pairs = mine.matched(&others).into_iter().flat_map(|(here, there)| here.pairs(there));
        let mut pairs: Vec<_> =
            pairs.map(|(here, there)| (number(&mine, here), number(&others, there))).collect();
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn requests_are_the_same_in_order_of_their_sites() {
        assert_eq!(matched("abc", "abc", true), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(matched("abcd", "acd", true), [(0, 0), (2, 1), (3, 2)], "b is missing");
        assert_eq!(matched("abc", "axc", true), [(0, 0), (1, 1), (2, 2)], "x stands for b");
        assert_eq!(matched("abc", "xyabc", true), [(0, 2), (1, 3), (2, 4)]);
        let others = matched("abcdefghijklmnopqrs", "ABCDEFGHIJKLMNOPQRS", true);
        assert!(others.is_empty(), "not so many in a row: {others:?}");
        assert_eq!(matched("aBc", "xaBc", false).last(), Some(&(2, 3)), "by lifetimes");
    }

    #[test]
    fn iterations_are_compared_with_their_own() {
        // Six requests, of two and of three iterations: the third is like the other's second.
        assert_eq!(matched("ab|ab|ab|", "ab|ba|", true)[..2], [(0, 0), (1, 1)]);
        let third: Vec<_> = matched("ab|ab|ac|z", "ab|ac|yz", true);
        assert!(third.contains(&(4, 2)) && third.contains(&(5, 3)), "{third:?}");
        assert!(third.contains(&(6, 5)), "what follows the last mark: {third:?}");
        assert_eq!(matched("ab|ab|", "abab", true).len(), 4, "one has no marks");
    }

    #[test]
    fn loops_are_compared_as_if_gone_through_once() {
        // A sample takes two requests, and there are more samples here than there.
        let found = matched("abxyxyxyxyxycd", "abxyxyxyxycd", true);
        assert_eq!(found.len(), 14, "{found:?}");
        for pair in [(0, 0), (1, 1), (2, 2), (3, 3), (10, 8), (11, 9), (12, 10), (13, 11)] {
            assert!(found.contains(&pair), "{pair:?} of {found:?}");
        }
        let once = matched("abxyxyxyxyxycd", "abxycd", true);
        assert_eq!(once.len(), 14, "a loop that is gone through once: {once:?}");
    }
}
