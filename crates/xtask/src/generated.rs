//! Files that are generated and committed: continuous integration makes them again and fails
//! if they differ.

use std::process::Command;

use crate::steps::{self, Outcome, root, run};

/// Written by the library's build script.
pub(crate) const HEADER: &str = "include/genesis.h";
/// Has the table of options between two marks.
pub(crate) const README: &str = "README.md";

const BEGIN: &str = "<!-- begin: genesis options --markdown -->\n";
const END: &str = "<!-- end -->";

/// Makes the header and the README's table anew.
pub(crate) fn write() -> Outcome {
    run(&crate::suite::build_programs())?;
    let table = Command::new(steps::target_folder().join("debug/genesis"))
        .args(["options", "--markdown"])
        .current_dir(root())
        .output()
        .map_err(|error| format!("genesis options: {error}"))?;
    if !table.status.success() {
        return Err(format!("genesis options: {}", String::from_utf8_lossy(&table.stderr)));
    }
    let table = String::from_utf8(table.stdout).map_err(|error| error.to_string())?;
    let path = root().join(README);
    let readme = std::fs::read_to_string(&path).map_err(|error| format!("{README}: {error}"))?;
    let updated = between_marks(&readme, &table).ok_or(format!("{README}: the marks are gone"))?;
    if updated != readme {
        std::fs::write(&path, updated).map_err(|error| format!("{README}: {error}"))?;
    }
    Ok(())
}

/// `text` with what stands between the marks replaced by `content`.
fn between_marks(text: &str, content: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{content}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = format!("a\n{BEGIN}old\n{END}\nb\n");
        let updated = between_marks(&text, "new\n").unwrap();
        assert_eq!(updated, format!("a\n{BEGIN}new\n{END}\nb\n"));
        assert_eq!(between_marks(&updated, "new\n").unwrap(), updated);
        assert_eq!(between_marks("no marks", "new\n"), None);
    }
}
