//! The licences of what is inside, in one file: each text once, under the crates it is for.
//!
//! Not cargo-about: it knows neither the C library inside zstd-sys nor Rust's standard library, and
//! is 160 crates to compile.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use steps::root;

use super::dependencies::Dependency;
use super::files::failed;

/// Its name among the documents of a package.
pub(super) const FILE_NAME: &str = "THIRD-PARTY-LICENSES.txt";
/// The licence of Rust's standard library, which is in everything.
pub(super) const OF_RUST: &str = "MIT OR Apache-2.0";

/// How the names of files with a licence's text begin, in lower case.
const NAMES: [&str; 6] = ["license", "licence", "unlicense", "copying", "copyright", "notice"];

/// The file.
pub(super) fn text(crates: &[Dependency]) -> Result<String, String> {
    let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = format!("Rust's standard library: {OF_RUST}\n");
    for one in crates.iter().filter(|one| !one.is_own) {
        let name = format!("{} {}", one.name, one.version);
        // Writing to a string cannot fail.
        let _ = writeln!(list, "{name}: {}", one.licence);
        for file in files(one)? {
            let text = fs::read_to_string(&file).map_err(failed(&file))?;
            let held = holders.entry(text.trim_end().replace('\r', "")).or_default();
            if !held.contains(&name) {
                held.push(name.clone());
            }
        }
    }
    let own = root().join("LICENSE-APACHE");
    let apache = fs::read_to_string(&own).map_err(failed(&own))?;
    let held = holders.entry(apache.trim_end().to_owned()).or_default();
    held.insert(0, "Rust's standard library".to_owned());
    let mut text =
        format!("What Genesis's libraries and program contain besides Genesis.\n\n{list}");
    let mut texts: Vec<(&String, &Vec<String>)> = holders.iter().collect();
    texts.sort_by_key(|(_, held)| held.first());
    for (licence, held) in texts {
        let _ = write!(text, "\n{}\n{}\n\n{licence}\n", "=".repeat(78), held.join(", "));
    }
    Ok(text)
}

/// The texts that come with a crate, and with the C library inside of it.
fn files(one: &Dependency) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for folder in [one.folder.clone(), one.folder.join("zstd")] {
        files.extend(licences_in(&folder)?);
    }
    Ok(files)
}

fn licences_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        path.is_file() && NAMES.iter().any(|start| name.starts_with(start))
    };
    let entries = fs::read_dir(folder).map_err(failed(folder))?;
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_licence).collect();
    files.sort();
    Ok(files)
}
