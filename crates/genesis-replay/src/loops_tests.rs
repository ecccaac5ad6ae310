//! Tests of loops, in texts whose letters are requests and frees.

use std::collections::BTreeSet;

use super::*;

/// Requests for capital letters, frees for small ones, all of equal size but those after a `+`.
fn steps(text: &str) -> Vec<Step> {
    let mut requested_bytes = 512;
    let mut steps = Vec::new();
    for letter in text.chars() {
        if letter == '+' {
            requested_bytes += 512;
            continue;
        }
        let requested_bytes = if letter.is_ascii_uppercase() { requested_bytes } else { 0 };
        steps.push(Step { call: steps.len(), letter: letter as u32, requested_bytes });
    }
    steps
}

/// The letter of each request's place, and its loops' counts.
fn told(text: &str) -> String {
    let place = |place: Place| {
        let letter = place.letter as u8 as char;
        let counts: Vec<_> = place.loops.iter().map(|each| each.count.to_string()).collect();
        assert_eq!(place.calls.len(), place.loops.iter().map(|each| each.count).product::<usize>());
        format!("{letter}{}", counts.join("*"))
    };
    let places = written_once(&steps(text)).into_iter().map(place);
    places
        .filter(|place| place.starts_with(|letter: char| letter.is_uppercase()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn what_repeats_is_written_once() {
    for (text, expected) in [
        ("", ""),
        ("ABC", "A B C"),
        ("AABC", "A A B C"),
        ("AAAAB", "A4 B"),
        ("XAaAaAaY", "X A3 Y"),
        ("XABabABabABabY", "X A3 B3 Y"),
        // Eight calls, and the same as two iterations of fewer.
        ("ABabABab", "A2 B2"),
        ("XAaAa", "X A A"),
        // Loops in loops, of equal counts and not.
        ("XAaAaAaXAaAaAaXAaAaAa", "X3 A3*3"),
        ("XAaAaAaXAaAaAaAa", "X A3 X A4"),
        // Sizes differ: three are none, four are one.
        ("A+A+A", "A A A"),
        ("A+A+A+A", "A4"),
        // A part of other size before those that are equal is not of their loop.
        ("A+AAAAA", "A A5"),
    ] {
        assert_eq!(told(text), expected, "{text}");
    }
}

#[test]
fn iterations_and_ends_are_known() {
    let places = written_once(&steps("XAaAaAaXAaAaAaXAaAaAaY"));
    let place = &places[1];
    assert_eq!(place.calls, [1, 3, 5, 8, 10, 12, 15, 17, 19]);
    let iterations = |at| [place.iteration(at, 0), place.iteration(at, 1)];
    assert_eq!([0, 2, 3, 8].map(iterations), [[0, 0], [0, 2], [1, 0], [2, 2]]);
    assert_eq!(
        [0, 3, 8].map(|at| [place.end(at, 0), place.end(at, 1)]),
        [[21, 7], [21, 14], [21, 21]]
    );
}

#[test]
fn places_of_other_counts_are_paired_from_end_to_end() {
    let pairs = |mine: &str, others: &str| {
        let (mine, others) = (written_once(&steps(mine)), written_once(&steps(others)));
        mine[0].pairs(&others[0]).collect::<Vec<_>>()
    };
    assert_eq!(pairs("AAA", "AAA"), [(0, 0), (1, 1), (2, 2)]);
    assert_eq!(pairs("AAAAA", "AAA"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2)]);
    assert_eq!(pairs("AAA", "AAAAA"), [(0, 0), (1, 2), (2, 4)]);
    assert_eq!(pairs("AAA", "A"), [(0, 0), (1, 0), (2, 0)]);
    // Each iteration of the outer loop with its own.
    let found = pairs("AAAxAAAxAAAx", "AAAAAxAAAAAxAAAAAx");
    let expected = [(0, 0), (1, 2), (2, 4), (4, 6), (5, 8), (6, 10), (8, 12), (9, 14), (10, 16)];
    assert_eq!(found, expected);
}

#[test]
fn loops_that_are_gone_through_once_are_found_between_others() {
    for (mine, others, expected) in [
        (&[3, 15, 12][..], &[3, 12][..], Some(vec![3, 1, 12])),
        (&[3, 80], &[3, 8], Some(vec![3, 8])),
        (&[80], &[], Some(vec![1])),
        (&[80, 5], &[5], Some(vec![1, 5])),
        (&[5], &[80, 5], None),
    ] {
        assert_eq!(aligned(mine, others).map(|(counts, _)| counts), expected);
    }
}

/// All runs, by trying each start and period.
fn naive(text: &[u32]) -> BTreeSet<Run> {
    let mut runs = BTreeSet::new();
    for period in 1..=text.len() / 2 {
        let is_same = |at: usize| text[at] == text[at + period];
        let mut start = 0;
        while start + period < text.len() {
            let same = (start..text.len() - period).take_while(|at| is_same(*at)).count();
            let is_primitive = |run: &Run| {
                (1..period).all(|part| {
                    period % part > 0
                        || (run.start..run.end - part).any(|at| text[at] != text[at + part])
                })
            };
            let run = Run { period, start, end: start + same + period };
            if same >= period && is_primitive(&run) {
                runs.insert(run);
            }
            start += same + 1;
        }
    }
    runs
}

#[test]
fn runs_are_those_that_trying_all_finds() {
    let mut state = 1_u64;
    for length in 0..400 {
        // Few letters, and words that repeat.
        let mut text: Vec<u32> = Vec::new();
        while text.len() < length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = (state >> 33) as usize;
            match draw % 4 {
                0 if text.len() > 1 => {
                    let start = text.len() - 1 - draw / 4 % text.len().min(40);
                    let word = text[start..].to_vec();
                    (0..draw / 256 % 4).for_each(|_| text.extend(&word));
                }
                _ => text.push((draw / 4 % 3) as u32),
            }
        }
        let found = runs(&text);
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), naive(&text), "{text:?}");
    }
}

#[test]
fn many_calls_take_no_time_by_their_square() {
    let mut text = String::new();
    for step in 0..300 {
        (0..step % 7).for_each(|_| text += "X");
        (0..100).for_each(|_| text += "YABaAab");
    }
    let places = written_once(&steps(&text));
    assert!(places.len() < 5000, "{}", places.len());
}
