//! What each driver call costs, in virtual nanoseconds.
//!
//! A price is a list of points, as measurements are published: at this size, so many nanoseconds.
//! Between two points the price is linear. Below the first point it is the first's; beyond the
//! last, the line through the last two goes on. The first point is the least price, and what a
//! call costs that fails. Calls that concern no memory have one point, at size 0.
//!
//! A call over several mappings costs the price of its first mapping, and for each further one
//! the price in the second list at its size. Where that list is empty, mappings do not matter,
//! and the size is the whole call's. The mappings of one call count as equally large.
//!
//! A *tail* is the slow call among many: one call of every so many costs that much more than the
//! least price that a call of the least size costs exactly the tail. Tails go by the count of
//! calls, so runs are reproducible, and a percentile of the run is that of the measurement.
//!
//! The prices themselves are in [`crate::Prices`]; replace one with [`CostTable::set`]. The page
//! that `cargo xtask gpu` writes ends its table of calls with entries of this form.

use crate::call::Call;

/// Sizes in bytes, ascending, with prices in nanoseconds.
pub type Points = &'static [(u64, u64)];

/// Calls that take much longer than others of their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// One call of so many is slow: 100 for the 99th percentile.
    pub every: u64,
    /// What it costs, at the least size.
    pub nanoseconds: u64,
}

/// The price of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// By the size of the memory concerned: of the call's, or of its first mapping.
    pub points: Points,
    /// For each mapping after the first, by its size; empty: mappings do not matter.
    pub further: Points,
    /// Slow calls.
    pub tail: Option<Tail>,
}

impl Cost {
    /// A price by the size of the memory that the call concerns.
    pub const fn by_size(points: Points) -> Self {
        Self { points, further: &[], tail: None }
    }

    /// A price for each mapping, by its size.
    pub const fn per_mapping(points: Points) -> Self {
        Self { points, further: points, tail: None }
    }

    /// The same, with one slow call of every `every`.
    pub const fn with_tail(self, every: u64, nanoseconds: u64) -> Self {
        Self { tail: Some(Tail { every, nanoseconds }), ..self }
    }

    /// The least price of all sizes: what a call costs that fails or concerns no memory.
    pub fn base_ns(&self) -> u64 {
        self.points.first().map_or(0, |point| point.1)
    }

    /// What a call costs that concerns `bytes` in `mappings` mappings, without tails.
    pub fn price_ns(&self, bytes: u64, mappings: u64) -> u64 {
        if self.further.is_empty() || mappings == 0 {
            return price_at(self.points, bytes);
        }
        let mapping_bytes = bytes / mappings;
        let further_ns = price_at(self.further, mapping_bytes).saturating_mul(mappings - 1);
        price_at(self.points, mapping_bytes).saturating_add(further_ns)
    }

    /// What the `number`th call of its kind costs more because it is slow; mostly 0.
    pub(crate) fn tail_ns(&self, number: u64) -> u64 {
        let slow = self.tail.filter(|tail| number.is_multiple_of(tail.every));
        slow.map_or(0, |tail| tail.nanoseconds.saturating_sub(self.base_ns()))
    }
}

/// The price at `bytes` on the line through `points`.
fn price_at(points: &[(u64, u64)], bytes: u64) -> u64 {
    let above = points.partition_point(|point| point.0 < bytes);
    // Beyond the last point, the line through the last two.
    let right = above.min(points.len().saturating_sub(1));
    let Some(&(right_bytes, right_ns)) = points.get(right) else { return 0 };
    let left = right.checked_sub(1).and_then(|left| points.get(left));
    let Some(&(left_bytes, left_ns)) = left.filter(|_| above > 0) else {
        return right_ns;
    };
    let rise = i128::from(right_ns) - i128::from(left_ns);
    let run = i128::from(right_bytes) - i128::from(left_bytes);
    let from_left = i128::from(bytes) - i128::from(left_bytes);
    let price = i128::from(left_ns) + rise.saturating_mul(from_left) / run.max(1);
    u64::try_from(price.max(0)).unwrap_or(u64::MAX)
}

/// The price of every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostTable {
    costs: [Cost; Call::COUNT],
}

impl CostTable {
    /// A table in which every call is free.
    pub const fn free_of_charge() -> Self {
        Self { costs: [Cost::by_size(&[]); Call::COUNT] }
    }

    /// The price of `call`.
    pub const fn get(&self, call: Call) -> Cost {
        self.costs[call as usize]
    }

    /// Replaces the price of `call`.
    pub const fn set(&mut self, call: Call, cost: Cost) {
        self.costs[call as usize] = cost;
    }

    /// The same without slow calls.
    pub fn without_tails(mut self) -> Self {
        self.costs.iter_mut().for_each(|cost| cost.tail = None);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: Points = &[(2, 100), (4, 110), (8, 150)];

    #[test]
    fn prices_run_straight_between_points_and_on_beyond_the_last() {
        let priced = [0, 2, 3, 4, 6, 8, 10, 16].map(|bytes| price_at(POINTS, bytes));
        assert_eq!(priced, [100, 100, 105, 110, 130, 150, 170, 230]);
        assert_eq!([0, 7, u64::MAX].map(|bytes| price_at(&[(5, 40)], bytes)), [40; 3]);
        assert_eq!(price_at(&[], 7), 0);
        assert_eq!(price_at(&[(0, 0), (1, u64::MAX)], u64::MAX), u64::MAX);
    }

    #[test]
    fn a_price_for_each_mapping_counts_them() {
        let whole = Cost::by_size(POINTS);
        assert_eq!((whole.price_ns(8, 0), whole.price_ns(8, 4)), (150, 150));
        let each = Cost::per_mapping(POINTS);
        assert_eq!([1, 2, 4].map(|mappings| each.price_ns(8, mappings)), [150, 220, 400]);
        let less = Cost { further: &[(2, 6)], ..each };
        assert_eq!([1, 2, 4].map(|mappings| less.price_ns(8, mappings)), [150, 116, 118]);
    }

    #[test]
    fn slow_calls_come_by_count() {
        let cost = Cost::by_size(POINTS).with_tail(3, 1_000);
        assert_eq!([1, 2, 3, 4, 6].map(|number| cost.tail_ns(number)), [0, 0, 900, 0, 900]);
        let mut table = CostTable::free_of_charge();
        table.set(Call::Create, cost);
        assert_eq!(table.without_tails().get(Call::Create), Cost::by_size(POINTS));
    }
}
