//! The call log: one line for each call, in the order in which they ended.
//!
//! A line is `microseconds thread call(arguments) = code`; the time counts from the first call of
//! the process. Also the notices: each missing function that a program wanted is named once on
//! standard error.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The log; off if no file was named.
#[derive(Debug)]
pub(crate) struct Log {
    file: Option<Mutex<File>>,
    started: Instant,
}

impl Log {
    /// The log to the file at `path`.
    pub(crate) fn open(path: Option<&str>) -> Result<Self, String> {
        let create =
            |path| File::create(path).map_err(|error| format!("SIMCUDA_LOG={path}: {error}"));
        let file = path.map(create).transpose()?.map(Mutex::new);
        Ok(Self { file, started: Instant::now() })
    }

    /// Returns true if calls are logged.
    pub(crate) fn is_on(&self) -> bool {
        self.file.is_some()
    }

    /// Writes the line of a call.
    pub(crate) fn call(&self, name: &str, arguments: fmt::Arguments<'_>, code: i32) {
        let Some(file) = &self.file else { return };
        let microseconds = self.started.elapsed().as_micros();
        // SAFETY: returns the number of the calling thread and touches no memory.
        let thread = unsafe { libc::gettid() };
        let line = format!("{microseconds} {thread} {name}({arguments}) = {code}\n");
        // A log that cannot be written does not disturb the program.
        let _ = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}

/// Prints once on standard error that a program wanted something that is not implemented.
pub(crate) fn missing(name: &str) {
    static NAMED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if named.get_or_insert_with(HashSet::new).insert(name.to_owned()) {
        eprintln!("simcuda: {name} is not implemented");
    }
}
