//! Checks that do not depend on each other, as many at once as there are processors.

use std::sync::Mutex;

use steps::Outcome;

/// A check.
pub(super) type Job<'a> = Box<dyn FnOnce() -> Outcome + Send + 'a>;

/// Runs all `jobs`, also after one failed; the error has every failure, in the order in which they
/// were found.
pub(super) fn run_all(jobs: Vec<Job<'_>>) -> Outcome {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let queue = Mutex::new(jobs.into_iter());
    let failures = Mutex::new(Vec::new());
    let next = || queue.lock().ok()?.next();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(job) = next() {
                    if let Err(failure) = job() {
                        failures.lock().expect("no job holds this lock").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no job holds this lock");
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_runs_and_every_failure_is_reported() {
        let ran = Mutex::new(0);
        let jobs = (0..5).map(|number| -> Job<'_> {
            let ran = &ran;
            Box::new(move || {
                *ran.lock().unwrap() += 1;
                if number % 2 == 0 { Ok(()) } else { Err(format!("job {number}")) }
            })
        });
        let failures = run_all(jobs.collect()).unwrap_err();
        assert_eq!(*ran.lock().unwrap(), 5);
        assert!(failures.contains("job 1") && failures.contains("job 3"), "{failures}");
        assert_eq!(run_all(Vec::new()), Ok(()));
    }
}
