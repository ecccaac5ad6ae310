//! Vector clocks: what has happened before a point, stream by stream.
//!
//! A clock maps each stream to the number of its last operation that is known to come before.
//! Operation n of stream s happens before a point with clock C exactly if C\[s\] ≥ n. Streams are
//! small dense indices; absent ones count 0.

#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Vec<u64>);

impl Clock {
    pub(crate) fn get(&self, stream: u32) -> u64 {
        self.0.get(stream as usize).copied().unwrap_or(0)
    }

    /// Adds the first `sequence` operations of `stream` to what has happened before.
    pub(crate) fn advance(&mut self, stream: u32, sequence: u64) {
        let index = stream as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = self.0[index].max(sequence);
    }

    /// Adds everything that has happened before `other`.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_takes_the_later_of_each() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.advance(0, 5);
        a.advance(2, 1);
        b.advance(0, 3);
        b.advance(4, 7);
        a.join(&b);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|stream| a.get(stream)), [5, 0, 1, 0, 7, 0]);
        a.advance(0, 2);
        assert_eq!(a.get(0), 5, "a clock never goes back");
    }
}
