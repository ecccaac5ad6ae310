//! From measurements to a price: `base + per_page × pages + per_mapping × mappings`.
//!
//! Least squares of the *relative* error, because a call's time spans orders of magnitude over
//! its sizes and the small ones matter as much. No price is negative: a term that would be is
//! left out and the rest fitted again. A term that the measurements cannot tell from the others,
//! because its quantity never varies, is left out as well.

/// The terms: base, per page, per mapping.
const TERMS: usize = 3;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub(super) pages: f64,
    pub(super) mappings: f64,
    pub(super) nanoseconds: f64,
}

impl Observation {
    fn quantities(self) -> [f64; TERMS] {
        [1.0, self.pages, self.mappings]
    }
}

/// The prices of base, page and mapping, in nanoseconds; 0 for terms left out.
pub(super) fn fit(observations: &[Observation]) -> [f64; TERMS] {
    let mut terms: Vec<usize> = (0..TERMS).filter(|term| is_telling(*term, observations)).collect();
    loop {
        let mut prices = [0.0; TERMS];
        match solve(&terms, observations) {
            None => {
                // Two quantities go together: the later one is left out.
                terms.pop();
            }
            Some(found) => {
                for (term, price) in terms.iter().zip(found) {
                    prices[*term] = price;
                }
                let least = terms.iter().copied().min_by(|a, b| prices[*a].total_cmp(&prices[*b]));
                match least {
                    Some(term) if prices[term] < 0.0 => terms.retain(|other| *other != term),
                    _ => return prices,
                }
            }
        }
        if terms.is_empty() {
            return prices;
        }
    }
}

/// Whether the quantity of `term` varies; the base counts once.
fn is_telling(term: usize, observations: &[Observation]) -> bool {
    let mut quantities = observations.iter().map(|observation| observation.quantities()[term]);
    match (term, quantities.next()) {
        (_, None) => false,
        (0, Some(_)) => true,
        (_, Some(first)) => quantities.any(|quantity| quantity != first),
    }
}

/// Solves the normal equations of `terms` by elimination; `None` if they are singular.
fn solve(terms: &[usize], observations: &[Observation]) -> Option<Vec<f64>> {
    let count = terms.len();
    let mut rows = vec![vec![0.0; count + 1]; count];
    for observation in observations {
        let weight = observation.nanoseconds.max(1.0).powi(-2);
        let quantities = observation.quantities();
        for (row, &term) in rows.iter_mut().zip(terms) {
            let scaled = weight * quantities[term];
            for (column, &other) in terms.iter().enumerate() {
                row[column] += scaled * quantities[other];
            }
            row[count] += scaled * observation.nanoseconds;
        }
    }
    for column in 0..count {
        let scale = rows[column][column];
        let size_before = terms_size(&rows, column, count);
        if scale.abs() <= 1e-12 * size_before || scale == 0.0 {
            return None;
        }
        let pivot = rows[column].clone();
        for (index, row) in rows.iter_mut().enumerate() {
            if index != column {
                let factor = row[column] / scale;
                for (value, above) in row.iter_mut().zip(&pivot) {
                    *value -= factor * above;
                }
            }
        }
    }
    Some((0..count).map(|index| rows[index][count] / rows[index][index]).collect())
}

/// The largest coefficient in a row, which tells rounding from substance.
fn terms_size(rows: &[Vec<f64>], row: usize, count: usize) -> f64 {
    rows[row][..count].iter().fold(0.0, |largest: f64, value| largest.max(value.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(prices: [f64; TERMS], at: &[(f64, f64)]) -> Vec<Observation> {
        let [base, per_page, per_mapping] = prices;
        at.iter()
            .map(|&(pages, mappings)| Observation {
                pages,
                mappings,
                nanoseconds: base + per_page * pages + per_mapping * mappings,
            })
            .collect()
    }

    fn assert_close(found: [f64; TERMS], expected: [f64; TERMS]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-3 * (1.0 + expected), "{found} {expected}");
        }
    }

    #[test]
    fn prices_are_found_again() {
        let at = [(1.0, 1.0), (16.0, 1.0), (1024.0, 1.0), (16.0, 16.0), (64.0, 64.0)];
        for prices in [[59e3, 1e3, 0.0], [2e3, 50.0, 18e3], [25e3, 0.0, 100.0]] {
            assert_close(fit(&measured(prices, &at)), prices);
        }
    }

    #[test]
    fn what_never_varies_is_no_term() {
        let at = [(0.0, 0.0), (0.0, 0.0)];
        assert_close(fit(&measured([500.0, 7.0, 7.0], &at)), [500.0, 0.0, 0.0]);
        // Pages and mappings that always go together count as pages.
        let at = [(1.0, 1.0), (8.0, 8.0), (64.0, 64.0)];
        assert_close(fit(&measured([100.0, 10.0, 5.0], &at)), [100.0, 15.0, 0.0]);
        assert_eq!(fit(&[]), [0.0; TERMS]);
    }

    #[test]
    fn no_price_is_negative() {
        let falling: Vec<Observation> = [(1.0, 900.0), (10.0, 800.0), (100.0, 100.0)]
            .map(|(pages, nanoseconds)| Observation { pages, mappings: 0.0, nanoseconds })
            .to_vec();
        let [base, per_page, per_mapping] = fit(&falling);
        assert!(base > 0.0 && per_page == 0.0 && per_mapping == 0.0, "{base} {per_page}");
    }
}
