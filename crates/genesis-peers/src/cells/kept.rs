//! Every run that was measured, as JSON under the build folder, by what it measured: trace, room,
//! passes, prices and subject.
//!
//! A peer's counts do not change from run to run, so a tuning loop measures Genesis only and takes
//! its peers' runs from here. A trace is known by its name, calls and live peak. The versions of
//! the peers and of the driver stand-in are not part of the key: after a change of those, measure
//! all again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::results::failed;
use crate::run::{Room, Run};
use crate::trace::Trace;
use steps::Outcome;

/// The runs.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    all: All,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct All {
    runs: BTreeMap<String, Run>,
    /// Sizes in bytes; `None` if no device was found.
    smallest_devices: BTreeMap<String, Option<u64>>,
}

/// What a run measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) trace: &'a Trace,
    /// Ample for the smallest device, of which it is no part.
    pub(crate) room: Room,
    pub(crate) passes: u16,
    pub(crate) prices: &'a str,
    pub(crate) subject: &'a str,
}

impl Kept {
    /// What the file `path` has; nothing if there is no such file, or one of another form.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        Self { path: path.to_owned(), all: serde_json::from_slice(&text).unwrap_or_default() }
    }

    fn write(&self) -> Outcome {
        let text = serde_json::to_vec(&self.all).map_err(|error| failed(&self.path, &error))?;
        std::fs::write(&self.path, text).map_err(|error| failed(&self.path, &error))
    }

    pub(crate) fn get(&self, key: Key<'_>) -> Option<&Run> {
        self.all.runs.get(&key.text())
    }

    /// Adds a run, and writes the file.
    pub(crate) fn put(&mut self, key: Key<'_>, run: Run) -> Outcome {
        self.all.runs.insert(key.text(), run);
        self.write()
    }

    /// The smallest device, if there was a search for it.
    pub(crate) fn smallest_device(&self, key: Key<'_>) -> Option<Option<u64>> {
        self.all.smallest_devices.get(&key.text()).copied()
    }

    /// Adds what a search found, and writes the file.
    pub(crate) fn put_smallest_device(&mut self, key: Key<'_>, found: Option<u64>) -> Outcome {
        self.all.smallest_devices.insert(key.text(), found);
        self.write()
    }
}

impl Key<'_> {
    fn text(&self) -> String {
        let Self { trace, room, passes, prices, subject } = self;
        let Trace { name, calls, live_peak_bytes, .. } = trace;
        format!(
            "{name} ({calls} calls, {live_peak_bytes} bytes) {room} {passes} {prices} {subject}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::run;

    #[test]
    fn a_run_is_found_by_all_that_it_measured() {
        let trace = |calls| Trace {
            name: "t".to_owned(),
            path: PathBuf::new(),
            live_peak_bytes: 1 << 30,
            calls,
            records_streams: false,
        };
        let (one, other) = (trace(10), trace(11));
        let key = Key { trace: &one, room: Room::Ample, passes: 12, prices: "h100", subject: "s" };
        let path = std::env::temp_dir().join(format!("kept-{}.json", std::process::id()));
        let mut kept = Kept::read(&path);
        kept.put(key, run(1.0, &[1.0], 0)).unwrap();
        kept.put_smallest_device(key, Some(7)).unwrap();
        let kept = Kept::read(&path);
        assert!(kept.get(key).is_some_and(|run| run.completed().is_some()));
        assert_eq!(kept.smallest_device(key), Some(Some(7)));
        assert!(kept.get(Key { passes: 2, ..key }).is_none());
        assert!(kept.get(Key { trace: &other, ..key }).is_none());
        std::fs::remove_file(&path).unwrap();
    }
}
