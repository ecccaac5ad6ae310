//! "Did you mean …?": the known name nearest to a mistyped one.
//!
//! The distance is the number of letters inserted, dropped, replaced or swapped with their
//! neighbour, ignoring case. A name is near if at most a third of its letters differ, and at most
//! three; a more distant suggestion misleads.

/// The candidate nearest to `text`, if one is near.
pub(super) fn nearest(
    text: &str,
    candidates: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    candidates
        .map(|candidate| (distance(text, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= (candidate.len() / 3).clamp(1, 3))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// How many edits lead from `left` to `right`, by the usual table of prefixes, three rows of
/// which are kept: swapping two neighbours looks back two rows.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().map(|c| c.to_ascii_lowercase()).collect();
    let right: Vec<char> = right.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let replaced = above[j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut least = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        for (left, right, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("Round", "round", 0),
            ("Rund", "Round", 1),
            ("TPYE", "TYPE", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(left, right), edits, "{left} {right}");
        }
    }

    #[test]
    fn only_near_names_are_suggested() {
        let suggest = |text| nearest(text, ["Naive", "Round", "Exact", "Caching"].into_iter());
        assert_eq!(suggest("Rund"), Some("Round"));
        assert_eq!(suggest("cahcing"), Some("Caching"));
        assert_eq!(suggest("Elastic"), None);
        assert_eq!(suggest(""), None);
    }
}
