//! The loops of a recorded program: what it does several times in a row, written once.
//!
//! A program over twice the samples may go twice as often through a loop, and then its calls are
//! not those of a smaller batch with other sizes: there are more of them. Written once, each loop
//! has one length, whatever the batch.
//!
//! Calls are letters: a request's is its key, a free's that of its block. Where a text repeats
//! itself is its *runs*, maximal parts with a period at most half their length. There are fewer than
//! letters, and each is found from the longest Lyndon word at some place, under one of two opposite
//! orders of the letters (H. Bannai et al., "The 'Runs' Theorem", 2017). Words are compared by
//! hashes of their prefixes, so all runs of n letters take O(n log n). The shortest periods become
//! loops first, each a letter of a shorter text, whose runs may be loops around them.
//!
//! Two requests of one call site are more often two parts of one thing than a loop. So it takes
//! some iterations or calls to be one, and more iterations where their sizes differ.

use std::collections::HashMap;

/// So many iterations of equal sizes are a loop, or fewer with so many calls together.
const LEAST_ALIKE: usize = 3;
const LEAST_ALIKE_CALLS: usize = 8;
/// So many iterations of different sizes are a loop.
const LEAST_UNLIKE: usize = 4;
/// A text is made shorter so many times at most.
const MOST_ROUNDS: usize = 16;
/// The modulus of the hashes, a prime, and their base.
const MODULUS: u64 = (1 << 61) - 1;
const BASE: u64 = 0x0765_4321_0fed_cba9;
/// So many letters are compared one by one before hashes are.
const COMPARED: usize = 16;

/// A call as a letter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The index of the call.
    pub(crate) call: usize,
    /// Its letter.
    pub(crate) letter: u32,
    /// Bytes requested; 0 for a free.
    pub(crate) requested_bytes: u64,
}

/// A call of the program in which each loop is written once.
#[derive(Debug)]
pub(crate) struct Place {
    /// The letter.
    pub(crate) letter: u32,
    /// The loops around it, the outermost first.
    pub(crate) loops: Vec<Loop>,
    /// The calls made there, in order: the product of the loops' counts.
    pub(crate) calls: Vec<usize>,
}

/// A loop around a place.
#[derive(Debug)]
pub(crate) struct Loop {
    /// Its iterations each time.
    pub(crate) count: usize,
    /// The call after its last, for each time that the program goes through all of it.
    pub(crate) ends: Vec<usize>,
}

/// The calls of `steps`, with each loop written once.
pub(crate) fn written_once(steps: &[Step]) -> Vec<Place> {
    let mut numbers = Numbers::default();
    let mut nodes: Vec<Node> = steps.iter().map(|step| numbers.leaf(step)).collect();
    for _ in 0..MOST_ROUNDS {
        let loops = numbers.loops(&nodes);
        if loops.is_empty() {
            break;
        }
        nodes = numbers.folded(nodes, &loops);
    }
    places(&nodes)
}

impl Place {
    /// The calls made here, and for each the one made in `other`, the same place of another
    /// recording: the first and the last iterations are the same, the others are spread.
    pub(crate) fn pairs<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (usize, usize)> {
        let spread = |at: usize, count: usize, others: usize| match count {
            0 | 1 => 0,
            _ => (at * (others - 1) + (count - 1) / 2) / (count - 1),
        };
        let counts = self.counts_in(other);
        let pair = move |(at, call): (usize, &usize)| {
            let Some(counts) = &counts else {
                return (*call, other.calls[spread(at, self.calls.len(), other.calls.len())]);
            };
            let (mut there, mut unit) = (0, 1);
            for ((level, each), others) in self.loops.iter().enumerate().zip(counts).rev() {
                there += spread(self.iteration(at, level), each.count, *others) * unit;
                unit *= others;
            }
            (*call, other.calls[there])
        };
        self.calls.iter().enumerate().map(pair)
    }

    /// How often each loop around this place is gone through in `other`, the same place of another
    /// recording: once where it is no loop there. `None` if `other` is in more loops.
    pub(crate) fn counts_in(&self, other: &Self) -> Option<Vec<usize>> {
        let counts = |place: &Self| place.loops.iter().map(|each| each.count).collect::<Vec<_>>();
        aligned(&counts(self), &counts(other)).map(|(counts, _)| counts)
    }

    /// In which iteration of the loop `level` the call at `at` is made.
    pub(crate) fn iteration(&self, at: usize, level: usize) -> usize {
        at / self.below(level) % self.loops[level].count
    }

    /// The call made here in the loop's first iteration, where that at `at` is made in a later one.
    pub(crate) fn first(&self, at: usize, level: usize) -> usize {
        at - self.iteration(at, level) * self.below(level)
    }

    /// The call after the last of the loop `level` around the call at `at`.
    pub(crate) fn end(&self, at: usize, level: usize) -> usize {
        let each = &self.loops[level];
        each.ends[at / (self.below(level) * each.count)]
    }

    /// The calls made here in one iteration of the loop `level`.
    fn below(&self, level: usize) -> usize {
        self.loops[level + 1..].iter().map(|each| each.count).product()
    }
}

/// `others` with ones put between them, as many as `mine`, so that most of both are equal; and how
/// many are.
fn aligned(mine: &[usize], others: &[usize]) -> Option<(Vec<usize>, usize)> {
    let Some((first, rest)) = mine.split_first() else {
        return others.is_empty().then_some((Vec::new(), 0));
    };
    let put = |count: usize, others: &[usize]| {
        let (counts, equal) = aligned(rest, others)?;
        let counts = [&[count], &*counts].concat();
        Some((counts, equal + usize::from(count == *first)))
    };
    let once = if others.len() > rest.len() { None } else { put(1, others) };
    let taken = others.split_first().and_then(|(count, others)| put(*count, others));
    [once, taken].into_iter().flatten().max_by_key(|(_, equal)| *equal)
}

/// A call, or a loop.
struct Node {
    letter: u32,
    /// Equal for equal sizes.
    sizes: u32,
    /// The calls in it.
    calls: usize,
    content: Content,
}

enum Content {
    Call { call: usize, letter: u32 },
    Loop { count: usize, iterations: Vec<Node> },
}

/// Numbers for what is equal.
#[derive(Default)]
struct Numbers {
    letters: HashMap<(usize, Vec<u32>), u32>,
    sizes: HashMap<Vec<u64>, u32>,
}

impl Numbers {
    fn leaf(&mut self, step: &Step) -> Node {
        Node {
            letter: self.letter(0, vec![step.letter]),
            sizes: self.size(vec![step.requested_bytes]),
            calls: 1,
            content: Content::Call { call: step.call, letter: step.letter },
        }
    }

    fn letter(&mut self, count: usize, letters: Vec<u32>) -> u32 {
        let next = self.letters.len() as u32;
        *self.letters.entry((count, letters)).or_insert(next)
    }

    fn size(&mut self, sizes: Vec<u64>) -> u32 {
        let next = self.sizes.len() as u32;
        *self.sizes.entry(sizes).or_insert(next)
    }

    /// The loops to make of `nodes`: those with the shortest periods, and no two of one place.
    fn loops(&mut self, nodes: &[Node]) -> Vec<Repeat> {
        let with_sizes = nodes.iter().map(|node| self.letter(0, vec![node.letter, node.sizes]));
        let with_sizes = runs(&Vec::from_iter(with_sizes)).into_iter().map(|run| (run, true));
        let letters = nodes.iter().map(|node| node.letter);
        let letters = runs(&Vec::from_iter(letters)).into_iter().map(|run| (run, false));
        let mut runs: Vec<(Run, bool)> = with_sizes.chain(letters).collect();
        runs.sort_unstable_by_key(|(run, is_alike)| (run.period, !is_alike, run.start));
        let mut is_taken = vec![false; nodes.len()];
        let mut loops = Vec::new();
        for (Run { period, mut start, end }, is_alike) in runs {
            while start < end {
                let free = is_taken[start..end].iter().take_while(|is_taken| !**is_taken).count();
                let (count, part) = (free / period, start..start + free / period * period);
                let calls = || nodes[part.clone()].iter().map(|node| node.calls).sum::<usize>();
                let is_loop = match is_alike {
                    true => count >= LEAST_ALIKE || (count > 1 && calls() >= LEAST_ALIKE_CALLS),
                    false => count >= LEAST_UNLIKE,
                };
                if is_loop {
                    is_taken[part].fill(true);
                    loops.push(Repeat { start, period, count });
                }
                start += free + 1;
            }
        }
        loops.sort_unstable();
        loops
    }

    /// `nodes` with `loops`, in order, made of them.
    fn folded(&mut self, nodes: Vec<Node>, loops: &[Repeat]) -> Vec<Node> {
        let mut folded = Vec::with_capacity(nodes.len());
        let mut nodes = nodes.into_iter();
        let mut done = 0;
        for &Repeat { start, period, count } in loops {
            folded.extend(nodes.by_ref().take(start - done));
            let iterations: Vec<Node> = nodes.by_ref().take(period * count).collect();
            done = start + period * count;
            let letters = iterations[..period].iter().map(|node| node.letter).collect();
            let sizes = iterations.iter().map(|node| u64::from(node.sizes)).collect();
            folded.push(Node {
                letter: self.letter(count, letters),
                sizes: self.size(sizes),
                calls: iterations.iter().map(|node| node.calls).sum(),
                content: Content::Loop { count, iterations },
            });
        }
        folded.extend(nodes);
        folded
    }
}

impl Node {
    fn last_call(&self) -> usize {
        match &self.content {
            Content::Call { call, .. } => *call,
            Content::Loop { iterations, .. } => iterations.last().map_or(0, Self::last_call),
        }
    }
}

/// The calls in `nodes`, with each loop written once.
fn places(nodes: &[Node]) -> Vec<Place> {
    let mut all = Vec::new();
    for node in nodes {
        match &node.content {
            &Content::Call { call, letter } => {
                all.push(Place { letter, loops: Vec::new(), calls: vec![call] });
            }
            Content::Loop { count, iterations } => {
                let mut each = iterations.chunks(iterations.len() / count).map(places);
                let mut merged = each.next().unwrap_or_default();
                for iteration in each {
                    merged.iter_mut().zip(iteration).for_each(|(all, one)| all.append(one));
                }
                let ends = vec![node.last_call() + 1];
                for place in &mut merged {
                    place.loops.insert(0, Loop { count: *count, ends: ends.clone() });
                }
                all.append(&mut merged);
            }
        }
    }
    all
}

impl Place {
    /// Adds what the next iteration does at this place.
    fn append(&mut self, next: Self) {
        self.calls.extend(next.calls);
        let loops = self.loops.iter_mut().zip(next.loops);
        loops.for_each(|(each, next)| each.ends.extend(next.ends));
    }
}

/// A word of a text, `count` times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Repeat {
    start: usize,
    period: usize,
    count: usize,
}

/// A maximal part of a text with a period of at most half its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    period: usize,
    start: usize,
    end: usize,
}

/// The runs of `text`, those with the shortest periods first.
fn runs(text: &[u32]) -> Vec<Run> {
    let hashes = Hashes::new(text);
    let mut runs = Vec::new();
    for is_reversed in [false, true] {
        // The end of the longest Lyndon word at each place is the next smaller suffix.
        let mut ends = vec![text.len(); text.len()];
        for start in (0..text.len()).rev() {
            let mut end = start + 1;
            while end < text.len() && !hashes.is_smaller(end, start, is_reversed) {
                end = ends[end];
            }
            ends[start] = end;
            let period = end - start;
            let run = Run {
                period,
                start: start - hashes.same_before(start, end),
                end: end + hashes.same_after(start, end),
            };
            if run.end - run.start >= 2 * period {
                runs.push(run);
            }
        }
    }
    runs.sort_unstable();
    runs.dedup();
    runs
}

/// A text, its prefixes' hashes, and the powers of the base.
struct Hashes<'a> {
    text: &'a [u32],
    prefixes: Vec<u64>,
    powers: Vec<u64>,
}

impl<'a> Hashes<'a> {
    fn new(text: &'a [u32]) -> Self {
        let (mut prefixes, mut powers) = (vec![0], vec![1]);
        let (mut prefix, mut power) = (0, 1);
        for letter in text {
            prefix = (product(prefix, BASE) + u64::from(*letter) + 1) % MODULUS;
            power = product(power, BASE);
            prefixes.push(prefix);
            powers.push(power);
        }
        Self { text, prefixes, powers }
    }

    fn of(&self, start: usize, end: usize) -> u64 {
        let before = product(self.prefixes[start], self.powers[end - start]);
        (self.prefixes[end] + MODULUS - before) % MODULUS
    }

    /// How many letters from `left` and from `right` on are the same; `left` < `right`.
    fn same_after(&self, left: usize, right: usize) -> usize {
        let most = self.text.len() - right;
        let is_same = |count: usize| self.text[left + count] == self.text[right + count];
        self.same(most, is_same, |count| {
            self.of(left, left + count) == self.of(right, right + count)
        })
    }

    /// How many letters before `left` and before `right` are the same.
    fn same_before(&self, left: usize, right: usize) -> usize {
        let is_same = |count: usize| self.text[left - 1 - count] == self.text[right - 1 - count];
        self.same(left, is_same, |count| {
            self.of(left - count, left) == self.of(right - count, right)
        })
    }

    /// How many of `most` letters are the same, where one and where the first few can be compared.
    fn same(
        &self,
        most: usize,
        is_same: impl Fn(usize) -> bool,
        are_same: impl Fn(usize) -> bool,
    ) -> usize {
        let few = most.min(COMPARED);
        if let Some(found) = (0..few).find(|at| !is_same(*at)) {
            return found;
        }
        let (mut same, mut other) = (few, most + 1);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if are_same(middle) { same = middle } else { other = middle }
        }
        same
    }

    /// Whether the suffix at `suffix` is smaller than that at `than`, which begins before it.
    fn is_smaller(&self, suffix: usize, than: usize, is_reversed: bool) -> bool {
        let same = self.same_after(than, suffix);
        match (self.text.get(suffix + same), self.text.get(than + same)) {
            (Some(letter), Some(other)) => (letter < other) != is_reversed,
            _ => true,
        }
    }
}

fn product(left: u64, right: u64) -> u64 {
    (u128::from(left) * u128::from(right) % u128::from(MODULUS)) as u64
}

#[cfg(test)]
#[path = "loops_tests.rs"]
mod tests;
