//! The least size at which something completes, by bisection.
//!
//! What is found is certain only as far as it was tried: the answer completed, and what is
//! `resolution` below it or less did not, or is the first `too_small`. A size that completes may
//! have larger ones that do not.

/// How often a guess is doubled.
const MOST_DOUBLINGS: u32 = 4;

/// The least number above `too_small` for which `completes` returns true, or at most `resolution`
/// more: by bisection below `guess`, which is doubled while it is too small. `None` if four
/// doublings are not enough.
pub fn least<E>(
    mut too_small: u64,
    guess: u64,
    resolution: u64,
    mut completes: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<u64>, E> {
    let mut enough = guess;
    let mut doublings = 0;
    while !completes(enough)? {
        if doublings == MOST_DOUBLINGS {
            return Ok(None);
        }
        doublings += 1;
        (too_small, enough) = (enough, enough * 2);
    }
    while enough - too_small > resolution {
        let middle = too_small + (enough - too_small) / 2;
        if completes(middle)? { enough = middle } else { too_small = middle }
    }
    Ok(Some(enough))
}

#[cfg(test)]
mod tests {
    use super::least;

    #[test]
    fn bisection_finds_the_least_wherever_it_is() {
        for threshold in 101..=300 {
            let completes = |pages| Ok::<_, String>(pages >= threshold);
            assert_eq!(least(100, 150, 1, completes), Ok(Some(threshold)));
            let about = least(100, 150, 10, completes).unwrap().unwrap();
            assert!((threshold..threshold + 10).contains(&about), "{threshold}: {about}");
        }
    }

    #[test]
    fn never_completing_and_failing_to_run_are_different() {
        assert_eq!(least(100, 150, 1, |_| Ok::<_, String>(false)), Ok(None));
        assert_eq!(least(100, 150, 1, |_| Err("no".to_owned())), Err("no".to_owned()));
    }
}
