//! Taking samples: how many, for how long, and which figures are kept.

use std::time::{Duration, Instant};

use super::{Kind, Row};
use crate::driver::{Answer, Driver};

/// Calls made first and not counted.
const WARM_UP: usize = 3;
/// The most samples of one row.
const MOST_SAMPLES: usize = 1000;
/// The fewest, unless the whole section is out of time.
const FEWEST_SAMPLES: usize = 5;
/// How long one row may take beyond its fewest samples.
const ROW_TIME: Duration = Duration::from_millis(700);

/// Measures rows.
pub(super) struct Bench<'a> {
    pub(super) driver: &'a Driver,
    deadline: Instant,
    rows: Vec<Row>,
}

/// The call of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    pub(super) mappings: u64,
    pub(super) remark: Option<&'static str>,
}

/// A call by its name in `simgpu` and in the driver, of no size.
pub(super) const fn kind(name: &'static str, driver_name: &'static str) -> Subject {
    let kind = Kind { name, driver_name };
    Subject { kind, bytes: 0, mappings: 0, remark: None }
}

impl Subject {
    pub(super) fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    pub(super) fn mappings(self, mappings: u64) -> Self {
        Self { mappings, ..self }
    }

    pub(super) fn remark(self, remark: &'static str) -> Self {
        Self { remark: Some(remark), ..self }
    }
}

impl<'a> Bench<'a> {
    pub(super) fn new(driver: &'a Driver, deadline: Instant) -> Self {
        Self { driver, deadline, rows: Vec::new() }
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    pub(super) fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    /// Measures `call` alone.
    pub(super) fn one(&mut self, subject: Subject, mut call: impl FnMut() -> Answer) -> Answer {
        self.several([subject], |timer| timer.time(0, &mut call))
    }

    /// Repeats `round`, which times one call for each of `subjects`.
    pub(super) fn several<const N: usize>(
        &mut self,
        subjects: [Subject; N],
        mut round: impl FnMut(&mut Timer<'_, N>) -> Answer,
    ) -> Answer {
        let mut timer = Timer { driver: self.driver, samples: [const { Vec::new() }; N] };
        let mut started = Instant::now();
        for count in 0..WARM_UP + MOST_SAMPLES {
            if count == WARM_UP {
                timer.samples.iter_mut().for_each(Vec::clear);
                started = Instant::now();
            }
            round(&mut timer)?;
            let enough = count >= WARM_UP + FEWEST_SAMPLES && started.elapsed() >= ROW_TIME;
            if enough || (count > WARM_UP && self.is_over()) {
                break;
            }
        }
        let rows = subjects.iter().zip(timer.samples);
        self.rows.extend(rows.filter_map(|(subject, samples)| row(subject, samples)));
        Ok(())
    }

    /// Adds samples taken elsewhere, such as on several threads.
    pub(super) fn add(&mut self, subject: Subject, samples: Vec<u64>) {
        self.rows.extend(row(&subject, samples));
    }
}

/// Times calls, by the number of their row.
pub(super) struct Timer<'a, const N: usize> {
    driver: &'a Driver,
    samples: [Vec<u64>; N],
}

impl<const N: usize> Timer<'_, N> {
    /// Makes a call and notes its time.
    pub(super) fn time<T>(&mut self, number: usize, call: impl FnOnce() -> Answer<T>) -> Answer<T> {
        let started_ns = self.driver.now_ns();
        let answer = call();
        let elapsed_ns = self.driver.now_ns() - started_ns;
        if answer.is_ok() {
            self.samples[number].push(elapsed_ns);
        }
        answer
    }
}

fn row(subject: &Subject, mut samples: Vec<u64>) -> Option<Row> {
    samples.sort_unstable();
    Some(Row {
        call: subject.kind.name.to_owned(),
        driver_call: subject.kind.driver_name.to_owned(),
        remark: subject.remark.map(str::to_owned),
        bytes: subject.bytes,
        mappings: subject.mappings,
        samples: samples.len(),
        least_ns: *samples.first()?,
        median_ns: quantile(&samples, 0.5)?,
        p99_ns: quantile(&samples, 0.99)?,
    })
}

/// The smallest sample that `part` of all do not exceed; `sorted` is in ascending order.
pub(crate) fn quantile(sorted: &[u64], part: f64) -> Option<u64> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples: Vec<u64> = (1..=100).collect();
        assert_eq!(quantile(&samples, 0.5), Some(50));
        assert_eq!(quantile(&samples, 0.99), Some(99));
        assert_eq!(quantile(&[7], 0.99), Some(7));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn rows_keep_what_matters() {
        let kind = Kind { name: "Map", driver_name: "cuMemMap" };
        let subject = Subject { kind, bytes: 4096, mappings: 1, remark: None };
        let row = row(&subject, vec![30, 10, 20]).unwrap();
        assert_eq!((row.least_ns, row.median_ns, row.p99_ns, row.samples), (10, 20, 30, 3));
        assert_eq!((row.call.as_str(), row.bytes, row.mappings), ("Map", 4096, 1));
        assert!(super::row(&subject, Vec::new()).is_none());
    }
}
