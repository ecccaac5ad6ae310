//! The forms, chosen by the ending of a file's name.

use std::io::{self, Write};
use std::path::Path;

use crate::model::Profile;
use crate::{html, json, perfetto, prometheus, snapshot, text};

/// A form in which a profile can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON, which can be read back.
    Json,
    /// A page for the browser.
    Html,
    /// Chrome's trace events.
    Perfetto,
    /// The report for the terminal.
    Text,
    /// Prometheus' text exposition.
    Prometheus,
    /// PyTorch's snapshot as a pickle.
    SnapshotPickle,
    /// PyTorch's snapshot as JSON.
    SnapshotJson,
}

impl Form {
    /// The endings of files, longer ones first.
    const ENDINGS: [(&'static str, Self); 10] = [
        (".perfetto.json", Self::Perfetto),
        (".trace.json", Self::Perfetto),
        (".snapshot.json", Self::SnapshotJson),
        (".json", Self::Json),
        (".html", Self::Html),
        (".htm", Self::Html),
        (".txt", Self::Text),
        (".prom", Self::Prometheus),
        (".pickle", Self::SnapshotPickle),
        (".pkl", Self::SnapshotPickle),
    ];

    /// The form for the ending of `path`: `.json`, `.html`, `.txt`, `.prom`, `.pickle` or `.pkl`,
    /// `.snapshot.json`, and `.trace.json` or `.perfetto.json`.
    pub fn of_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let found = Self::ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
        found.map(|&(_, form)| form)
    }

    /// Writes `profile` to `out` in many small pieces, so `out` should be buffered.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Json => json::write(profile, out),
            Self::Html => html::write(profile, out),
            Self::Perfetto => perfetto::write(profile, out),
            Self::Text => out.write_all(text::report(profile).as_bytes()),
            Self::Prometheus => out.write_all(prometheus::metrics(profile).as_bytes()),
            Self::SnapshotPickle => snapshot::write_pickle(profile, out),
            Self::SnapshotJson => snapshot::write_json(profile, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_say_the_form() {
        let of = |path: &str| Form::of_path(Path::new(path));
        assert_eq!(of("/a/b.json"), Some(Form::Json));
        assert_eq!(of("b.trace.JSON"), Some(Form::Perfetto));
        assert_eq!(of("b.snapshot.json"), Some(Form::SnapshotJson));
        assert_eq!(of("memory.pkl"), Some(Form::SnapshotPickle));
        assert_eq!(of("page.html"), Some(Form::Html));
        assert_eq!(of("json"), None);
    }
}
