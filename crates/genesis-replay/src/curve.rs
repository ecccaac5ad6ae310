//! How bytes depend on the batch: a curve through what was recorded at a few batches.
//!
//! Curves are tried in this order, where n is the batch:
//!
//! | curve | parameters |
//! |---|---|
//! | a; b·n; c·n² | 1 |
//! | a + b·n; b·n + c·n²; a + c·n² | 2 |
//! | b·n with n rounded up to a multiple of 2, 4, … 1024, or to a power of two | 2 |
//!
//! One with one parameter goes through the largest batch, one with two also through the smallest,
//! and it is taken if every recording lies on it, to 0.5 % or 16 bytes. There must be more
//! recordings than parameters: a curve through as many points is always exact and says nothing. So
//! two recordings cannot confirm a line, nor three a full quadratic. What no curve fits gets the
//! line of least squares, which is *not confirmed*. Bytes that fall with the batch are not
//! extrapolated below the least recorded.

use serde::{Deserialize, Serialize};

/// A recording lies on a curve if it is off by at most so much of itself …
const MOST_ERROR: f64 = 0.005;
/// … or by so many bytes.
const MOST_ERROR_BYTES: f64 = 16.0;
/// The multiples tried are the powers of two up to the one with this exponent.
const MOST_MULTIPLE_EXPONENT: u32 = 10;

/// What a coefficient is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// 1.
    One,
    /// The batch.
    Batch,
    /// The batch squared.
    Square,
    /// The batch rounded up to a multiple of this.
    Multiple(u64),
    /// The batch rounded up to a power of two.
    PowerOfTwo,
}

/// A sum of terms, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Each basis and its coefficient, in bytes.
    pub terms: Vec<(Basis, f64)>,
    /// True if more recordings lie on it than it has parameters.
    pub is_confirmed: bool,
    /// It is nowhere less.
    least_bytes: f64,
}

impl Basis {
    fn at(self, batch: u64) -> f64 {
        match self {
            Self::One => 1.0,
            Self::Batch => batch as f64,
            Self::Square => batch as f64 * batch as f64,
            Self::Multiple(of) => batch.div_ceil(of) as f64 * of as f64,
            Self::PowerOfTwo => {
                batch.checked_next_power_of_two().map_or(2f64.powi(64), |power| power as f64)
            }
        }
    }
}

impl Curve {
    /// The curve through `points`, bytes by batch: at least one, with distinct batches that rise.
    pub fn through(points: &[(u64, u64)]) -> Self {
        if let [(_, bytes)] = points {
            return Self {
                terms: vec![(Basis::One, *bytes as f64)],
                is_confirmed: false,
                least_bytes: 0.0,
            };
        }
        let confirmed = candidates(points.len()).find_map(|bases| {
            let terms = solved(&bases, points)?;
            let curve = Self { terms, is_confirmed: true, least_bytes: least(points) };
            points.iter().all(|point| curve.meets(*point)).then_some(curve)
        });
        confirmed.unwrap_or_else(|| line(points))
    }

    /// Bytes at `batch`.
    pub fn at(&self, batch: u64) -> f64 {
        let value: f64 = self.terms.iter().map(|(basis, each)| each * basis.at(batch)).sum();
        value.max(self.least_bytes)
    }

    fn meets(&self, (batch, bytes): (u64, u64)) -> bool {
        let bytes = bytes as f64;
        (self.at(batch) - bytes).abs() <= (bytes * MOST_ERROR).max(MOST_ERROR_BYTES)
    }

    /// The curve times `factor`, for a part of what it is the sum of: that part is not confirmed.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        let terms = self.terms.iter().map(|(basis, each)| (*basis, each * factor)).collect();
        Self { terms, is_confirmed: false, least_bytes: self.least_bytes * factor }
    }
}

/// The curves that `recordings` could confirm.
fn candidates(recordings: usize) -> impl Iterator<Item = Vec<Basis>> {
    use Basis::{Batch, Multiple, One, PowerOfTwo, Square};
    let one = [vec![One], vec![Batch], vec![Square]].into_iter().filter(move |_| recordings > 1);
    let two = [vec![One, Batch], vec![Batch, Square], vec![One, Square]].into_iter();
    let multiples = (1..=MOST_MULTIPLE_EXPONENT).map(|exponent| vec![Multiple(1 << exponent)]);
    let two = two.chain(multiples).chain([vec![PowerOfTwo]]);
    one.chain(two.filter(move |_| recordings > 2))
}

/// The coefficients with which the one or two `bases` meet the ends of `points`; `None` if they do
/// not, or bytes would fall without end.
fn solved(bases: &[Basis], points: &[(u64, u64)]) -> Option<Vec<(Basis, f64)>> {
    let (first, last) = (*points.first()?, *points.last()?);
    match *bases {
        [basis] => Some(vec![(basis, last.1 as f64 / basis.at(last.0))]),
        [one, other] => {
            let rows = [first, last].map(|(batch, _)| (one.at(batch), other.at(batch)));
            let determinant = rows[0].0 * rows[1].1 - rows[0].1 * rows[1].0;
            let (first, last) = (first.1 as f64, last.1 as f64);
            let each = (first * rows[1].1 - rows[0].1 * last) / determinant;
            let other_each = (rows[0].0 * last - first * rows[1].0) / determinant;
            // A line may begin below zero, as (n − 1)·b does; a sum with squares does not fall.
            let is_line = bases == [Basis::One, Basis::Batch];
            let is_meant = is_line || (each >= 0.0 && other_each >= 0.0);
            is_meant.then(|| vec![(one, each), (other, other_each)])
        }
        _ => None,
    }
}

/// The line of least squares.
fn line(points: &[(u64, u64)]) -> Curve {
    let count = points.len() as f64;
    let mean_of = |value: fn(&(u64, u64)) -> u64| {
        points.iter().map(|point| value(point) as f64).sum::<f64>() / count
    };
    let (batch, bytes) = (mean_of(|point| point.0), mean_of(|point| point.1));
    let apart = |point: &(u64, u64)| (point.0 as f64 - batch, point.1 as f64 - bytes);
    let products = points.iter().map(apart).map(|(x, y)| x * y).sum::<f64>();
    let squares = points.iter().map(apart).map(|(x, _)| x * x).sum::<f64>();
    let each = products / squares;
    Curve {
        terms: vec![(Basis::One, bytes - each * batch), (Basis::Batch, each)],
        is_confirmed: false,
        least_bytes: least(points),
    }
}

/// The least that a curve through `points` may be: what falls with the batch is not extrapolated.
fn least(points: &[(u64, u64)]) -> f64 {
    let falls = points.first().map(|point| point.1) > points.last().map(|point| point.1);
    let least_bytes = points.iter().map(|point| point.1).min().filter(|_| falls);
    least_bytes.unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use super::Basis::{Batch, Multiple, One, PowerOfTwo, Square};
    use super::*;

    fn of(batches: &[u64], bytes: impl Fn(u64) -> u64) -> Curve {
        let points: Vec<_> = batches.iter().map(|batch| (*batch, bytes(*batch))).collect();
        Curve::through(&points)
    }

    fn bases(curve: &Curve) -> Vec<Basis> {
        curve.terms.iter().map(|(basis, _)| *basis).collect()
    }

    #[test]
    fn two_recordings_confirm_one_parameter_and_three_two() {
        for (batches, bytes, expected) in [
            (&[8, 16][..], (|_| 5000) as fn(u64) -> u64, &[One][..]),
            (&[8, 16], |n| 300 * n, &[Batch]),
            (&[8, 16], |n| 700 * n * n, &[Square]),
            (&[8, 16, 32], |n| 100_000 + 300 * n, &[One, Batch]),
            (&[8, 16, 32], |n| 9000 * (n - 1), &[One, Batch]),
            (&[8, 16, 32], |n| 900 * n * n + 5000 * n, &[Batch, Square]),
            (&[8, 16, 32], |n| 900 * n * n + 100_000, &[One, Square]),
            (&[10, 21, 40], |n| 4096 * n.next_multiple_of(8), &[Multiple(8)]),
            (&[5, 9, 40], |n| 4096 * n.next_power_of_two(), &[PowerOfTwo]),
        ] {
            let curve = of(batches, bytes);
            assert!(curve.is_confirmed && bases(&curve) == expected, "{curve:?} for {expected:?}");
            for batch in [1, 24, 63, 100, 1000] {
                let (found, right) = (curve.at(batch), bytes(batch) as f64);
                assert!((found - right).abs() <= right * 0.001 + 1.0, "{batch}: {curve:?}");
            }
        }
    }

    #[test]
    fn what_too_few_recordings_show_is_a_line_and_not_confirmed() {
        let line = of(&[8, 16], |n| 100_000 + 300 * n);
        assert!(!line.is_confirmed && (line.at(32) - 109_600.0).abs() < 1.0, "{line:?}");
        let bent = of(&[8, 16, 32], |n| 100_000 + 3000 * n + 40 * n * n);
        assert_eq!((bases(&bent), bent.is_confirmed), (vec![One, Batch], false));
        let alone = of(&[8], |_| 77);
        assert_eq!((alone.at(1000), alone.is_confirmed), (77.0, false));
    }

    #[test]
    fn what_falls_is_not_extrapolated() {
        let falling = of(&[8, 16, 32], |n| 10_000 - 100 * n);
        assert_eq!((falling.at(1000), falling.at(16)), (6800.0, 8400.0));
        assert_eq!(falling.scaled(0.5).at(1000), 3400.0);
    }
}
