//! Files that are generated and committed. Continuous integration generates them again and fails if
//! they differ.

use steps::{Outcome, Step, output, root, run};

/// Written by the library's build script.
pub(crate) const HEADER: &str = "include/genesis.h";
/// What `genesis options --markdown` prints.
pub(crate) const OPTIONS: &str = "docs/options.md";

/// Generates the header and the page of options.
pub(crate) fn write() -> Outcome {
    run(&crate::suite::build_programs())?;
    let program = steps::target_folder().join("debug/genesis");
    let page = output(&Step::new(program, &["options", "--markdown"]))?;
    let path = root().join(OPTIONS);
    if std::fs::read_to_string(&path).ok().as_deref() != Some(&page) {
        std::fs::write(&path, page).map_err(|error| format!("{OPTIONS}: {error}"))?;
    }
    Ok(())
}
