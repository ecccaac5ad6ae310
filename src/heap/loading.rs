//! Whether a program *loads*: gets memory that it will keep, as for weights, gradients, or the state of
//! an optimizer.
//!
//! Extents of such memory may be large, because few of them are ever partly free. A program loads while
//! it *starts*: as long as hardly anything was freed. It loads *again* while its memory grows by more than
//! is freed. That is looked at since a mark, from which memory has grown by one or two twelfths of
//! itself. Where more is freed than was made since, the mark is set to here and now, so a few blocks that
//! are kept are not taken for a load.

/// Hardly anything was freed: under this part of what is reserved.
const STEADY_PART: u64 = 4;
/// The mark is moved when this part of what is reserved was made.
const STEP_PART: u64 = 12;

/// What a program does when its memory grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It starts.
    Start,
    /// It loads again.
    Again,
    /// It does not load.
    Steady,
}

/// A device's memory, followed from growth to growth.
#[derive(Debug, Default)]
pub(super) struct Loading {
    mark: Totals,
    /// The next mark.
    next: Totals,
}

/// A device's totals, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    reserved: u64,
    /// All that was ever freed.
    freed: u64,
}

impl Loading {
    /// The phase in which the memory grows, of which `reserved` bytes are held and `freed` bytes were
    /// ever freed.
    pub(super) fn follow(&mut self, reserved: u64, freed: u64) -> Phase {
        let now = Totals { reserved, freed };
        let made = |since: Totals| reserved.saturating_sub(since.reserved);
        if freed.saturating_sub(self.mark.freed) > made(self.mark) {
            (self.mark, self.next) = (now, now);
        } else if made(self.next) > reserved / STEP_PART {
            (self.mark, self.next) = (self.next, now);
        }
        if freed < reserved / STEADY_PART {
            Phase::Start
        } else if made(self.mark) > reserved / STEP_PART {
            Phase::Again
        } else {
            Phase::Steady
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with the phases it was in, one for each growth.
    #[derive(Default)]
    struct Program {
        loading: Loading,
        reserved: u64,
        freed: u64,
        phases: Vec<Phase>,
    }

    impl Program {
        /// Grows `times` times by one, and frees `freed` each time.
        fn grow(mut self, times: usize, freed: u64) -> Self {
            self.phases.clear();
            for _ in 0..times {
                self.phases.push(self.loading.follow(self.reserved, self.freed));
                self.reserved += 1;
                self.freed += freed;
            }
            self
        }
    }

    #[test]
    fn a_program_loads_at_its_start_and_again_when_it_frees_little() {
        let weights = Program::default().grow(160, 0);
        assert_eq!(weights.phases[4..], [Phase::Start; 156]);

        let training = weights.grow(200, 3);
        let is_steady = |phases: &[Phase]| phases.iter().all(|phase| *phase == Phase::Steady);
        assert!(is_steady(&training.phases[25..]), "{:?}", training.phases);

        let optimizer = training.grow(200, 0);
        let first = optimizer.phases.iter().position(|phase| *phase == Phase::Again).unwrap();
        assert!((20..40).contains(&first), "after some growth only: {first}");
        assert_eq!(optimizer.phases[first..], [Phase::Again].repeat(200 - first));

        let next = optimizer.grow(200, 3);
        assert!(is_steady(&next.phases[50..]), "{:?}", next.phases);
    }

    #[test]
    fn a_program_that_frees_as_it_grows_soon_loads_no_more() {
        let phases = Program::default().grow(160, 0).grow(1000, 2).phases;
        let last = phases.iter().rposition(|phase| *phase != Phase::Steady).unwrap();
        assert!(last < 40, "{last}: {:?}", &phases[..=last]);
    }
}
