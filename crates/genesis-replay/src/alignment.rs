//! Which requests of two recordings of one program are the same.
//!
//! The requests of each are a sequence of keys, and the sequences are compared as texts are (E. W.
//! Myers, "An O(ND) Difference Algorithm", 1986), iteration by iteration where the program marks
//! them: what both have in one order is the same, and so are a few requests in one place of both,
//! as many here as there, with other keys. A key is the call site, the device and the stream. Where
//! call sites are not known it is the device, the stream and the lifetime in calls, if that is
//! short: programs do the same for another batch, so their short lifetimes are the same.
//!
//! An iteration that the other recording does not have is compared with its last one.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use crate::program::{Kind, Program};

/// A lifetime of more calls is of no kind of its own.
const LONGEST_LIFETIME: usize = 16;
/// So many requests in a row may have other keys.
const MOST_REPLACED: usize = 16;
/// After so long a comparison is no longer made as short as possible.
const PATIENCE: Duration = Duration::from_secs(2);

/// What tells requests apart.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Site(Rc<str>),
    Lifetime(usize),
}

/// The keys of all recordings by number.
#[derive(Default)]
pub(crate) struct Keys {
    numbers: HashMap<(Key, u8, u16), u32>,
}

/// The requests of a recording, in order.
pub(crate) struct Requests {
    /// The index of the call of each.
    calls: Vec<usize>,
    /// The number of its key.
    keys: Vec<u32>,
    /// The requests of each iteration, and those after the last.
    iterations: Vec<Range<usize>>,
}

impl Keys {
    /// The requests of `program`, whose calls have the call sites `stacks`; empty if these are not
    /// known.
    pub(crate) fn requests(&mut self, program: &Program, stacks: &[Rc<str>]) -> Requests {
        let lifetimes = if stacks.is_empty() { lifetimes(program) } else { HashMap::new() };
        let (mut calls, mut keys) = (Vec::new(), Vec::new());
        let mut bounds = vec![0];
        let mut ends = program.iteration_ends.iter().peekable();
        for (index, call) in program.calls.iter().enumerate() {
            while ends.next_if(|end| end.calls <= index).is_some() {
                bounds.push(calls.len());
            }
            if call.kind != Kind::Allocate {
                continue;
            }
            let lifetime = || lifetimes.get(&index).copied().unwrap_or(LONGEST_LIFETIME);
            let key = match stacks.get(index) {
                Some(stack) => Key::Site(stack.clone()),
                None => Key::Lifetime(lifetime().min(LONGEST_LIFETIME)),
            };
            let next = self.numbers.len() as u32;
            keys.push(*self.numbers.entry((key, call.device, call.stream)).or_insert(next));
            calls.push(index);
        }
        bounds.extend(ends.map(|_| calls.len()));
        bounds.push(calls.len());
        let iterations = bounds.windows(2).map(|pair| pair[0]..pair[1]).collect();
        Requests { calls, keys, iterations }
    }
}

/// How many calls after its request each block is freed.
fn lifetimes(program: &Program) -> HashMap<usize, usize> {
    let mut begun = HashMap::new();
    let mut lifetimes = HashMap::new();
    for (index, call) in program.calls.iter().enumerate() {
        match call.kind {
            Kind::Allocate => drop(begun.insert(call.slot, index)),
            Kind::Free => {
                if let Some(begin) = begun.remove(&call.slot) {
                    lifetimes.insert(begin, index - begin);
                }
            }
            Kind::RecordStream | Kind::EmptyCache => {}
        }
    }
    lifetimes
}

impl Requests {
    /// For each request that is also in `other`, the index of its call here and there.
    pub(crate) fn matched(&self, other: &Self) -> HashMap<usize, usize> {
        let deadline = Instant::now() + PATIENCE;
        let mut matched = HashMap::new();
        for (here, there) in self.alike(other) {
            let (mine, others) = (&self.keys[here.clone()], &other.keys[there.clone()]);
            let same = |here_at: usize, there_at: usize, count: usize| {
                let call = move |at: usize| {
                    let (here_at, there_at) = (here.start + here_at, there.start + there_at);
                    (self.calls[here_at + at], other.calls[there_at + at])
                };
                (0..count).map(call)
            };
            let algorithm = Algorithm::Myers;
            for operation in capture_diff_slices_deadline(algorithm, mine, others, Some(deadline)) {
                match operation {
                    DiffOp::Equal { old_index, new_index, len } => {
                        matched.extend(same(old_index, new_index, len));
                    }
                    DiffOp::Replace { old_index, old_len, new_index, new_len }
                        if old_len == new_len && new_len <= MOST_REPLACED =>
                    {
                        matched.extend(same(old_index, new_index, new_len));
                    }
                    DiffOp::Replace { .. } | DiffOp::Delete { .. } | DiffOp::Insert { .. } => {}
                }
            }
        }
        matched
    }

    /// The iterations with those of `other` that they are compared with. The last of each is what
    /// follows the last mark; all is one where one of them has no marks.
    fn alike(&self, other: &Self) -> Vec<(Range<usize>, Range<usize>)> {
        let marks = self.iterations.len().min(other.iterations.len()) - 1;
        if marks == 0 {
            return vec![(0..self.calls.len(), 0..other.calls.len())];
        }
        let last = other.iterations.len() - 1;
        let pair = |(number, here): (usize, &Range<usize>)| {
            let is_rest = number + 1 == self.iterations.len();
            let there = if is_rest { last } else { number.min(last - 1) };
            (here.clone(), other.iterations[there].clone())
        };
        self.iterations.iter().enumerate().map(pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Action, Record};

    /// A program of requests at `sites`, each freed at once, with an end of an iteration for `|`.
    fn matched(mine: &str, others: &str, has_sites: bool) -> Vec<(usize, usize)> {
        let mut keys = Keys::default();
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
            keys.requests(&program, if has_sites { &stacks } else { &[] })
        };
        let (mine, others) = (requests(mine), requests(others));
        let place = |requests: &Requests, call| {
            requests.calls.iter().position(|found| *found == call).unwrap()
        };
        let pairs = mine.matched(&others);
        let mut places: Vec<_> =
            pairs.iter().map(|(a, b)| (place(&mine, *a), place(&others, *b))).collect();
        places.sort_unstable();
        places
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
}
