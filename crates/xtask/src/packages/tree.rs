//! What an installation consists of: each file, and its place below the prefix.
//!
//! The tree may be moved: the pkg-config and CMake files find everything by paths relative to
//! themselves. A manifest lists what was installed; uninstalling removes what it lists.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use steps::{Outcome, root};

use super::build::{Built, SYSTEM_LIBRARIES};
use super::files::{create, failed, files_under, remove};
use super::version::{SOVERSION, VERSION};
use crate::libraries::CUMEM;

/// The list of what was installed, among the documents.
const MANIFEST: &str = "share/doc/genesis/installed-files.txt";

/// What a file is.
#[derive(Debug)]
pub(super) enum Content {
    Copy(PathBuf),
    Text(String),
    /// A symbolic link to a file of that name in the same folder.
    Link(String),
}

/// One file.
#[derive(Debug)]
pub(super) struct Entry {
    /// Below the prefix.
    pub(super) path: String,
    pub(super) content: Content,
}

/// Where things go.
#[derive(Debug)]
pub(super) struct Layout {
    /// The folder of libraries, below the prefix.
    pub(super) library_folder: String,
    /// The prefix of a tree that is never moved; without one, files find it from their own place.
    pub(super) fixed_prefix: Option<&'static str>,
}

/// Every file except the manifest.
pub(super) fn entries(built: &Built, layout: &Layout) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut add = |path: String, content| entries.push(Entry { path, content });
    let lib = &layout.library_folder;
    let (real, linked) = (format!("libgenesis.so.{VERSION}"), format!("libgenesis.so.{SOVERSION}"));
    add(format!("{lib}/{real}"), Content::Copy(built.library.clone()));
    add(format!("{lib}/{linked}"), Content::Link(real));
    add(format!("{lib}/libgenesis.so"), Content::Link(linked));
    add(format!("{lib}/libgenesis_preload.so"), Content::Copy(built.preload.clone()));
    add(format!("{lib}/{CUMEM}"), Content::Copy(built.cumem.clone()));
    add(format!("{lib}/libgenesis.a"), Content::Copy(built.archive.clone()));
    for (template, path) in [
        ("genesis.pc.in", "pkgconfig/genesis.pc"),
        ("genesis-static.pc.in", "pkgconfig/genesis-static.pc"),
        ("GenesisConfig.cmake.in", "cmake/Genesis/GenesisConfig.cmake"),
        ("GenesisConfigVersion.cmake.in", "cmake/Genesis/GenesisConfigVersion.cmake"),
    ] {
        add(format!("{lib}/{path}"), Content::Text(filled(template, layout)?));
    }
    let headers = root().join("include");
    for header in files_under(&headers)? {
        add(format!("include/{}", relative(&header, &headers)), Content::Copy(header));
    }
    add("bin/genesis".to_owned(), Content::Copy(built.program.clone()));
    for file in files_under(&built.shared)? {
        add(relative(&file, &built.shared), Content::Copy(file));
    }
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(entries)
}

/// A file of `packaging/` with the names between `@` replaced.
fn filled(template: &str, layout: &Layout) -> Result<String, String> {
    let path = root().join("packaging").join(template);
    let text = fs::read_to_string(&path).map_err(failed(&path))?;
    let up = layout.library_folder.split('/').map(|_| "..").collect::<Vec<_>>().join("/");
    let moved_prefix = || format!("${{pcfiledir}}/../{up}");
    let prefix = layout.fixed_prefix.map_or_else(moved_prefix, str::to_owned);
    Ok([
        ("@prefix@", prefix),
        ("@libdir@", format!("${{prefix}}/{}", layout.library_folder)),
        ("@libdir_to_prefix@", up),
        ("@system_libraries@", SYSTEM_LIBRARIES.map(|name| format!("-l{name}")).join(" ")),
        ("@system_library_names@", SYSTEM_LIBRARIES.join(";")),
        ("@version@", VERSION.to_owned()),
        ("@soversion@", SOVERSION.to_owned()),
    ]
    .iter()
    .fold(text, |text, (name, value)| text.replace(name, value)))
}

/// Writes `entries` below `prefix`.
pub(super) fn write(entries: &[Entry], prefix: &Path) -> Outcome {
    for entry in entries {
        let path = prefix.join(&entry.path);
        create(path.parent().unwrap_or(prefix))?;
        // Written over, a library that a running program has open would change in that program.
        remove(&path)?;
        match &entry.content {
            Content::Copy(from) => {
                fs::copy(from, &path).map_err(failed(from))?;
                let mode = if entry.path.starts_with("bin/") { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            }
            Content::Text(text) => fs::write(&path, text),
            Content::Link(to) => symlink(to, &path),
        }
        .map_err(failed(&path))?;
    }
    Ok(())
}

/// Writes `entries` and their list below `prefix`.
pub(super) fn install(entries: &[Entry], prefix: &Path) -> Outcome {
    let paths = entries.iter().map(|entry| entry.path.as_str()).chain([MANIFEST]);
    let list = paths.map(|path| format!("{path}\n")).collect();
    write(entries, prefix)?;
    write(&[Entry { path: MANIFEST.into(), content: Content::Text(list) }], prefix)
}

/// Removes the files in the list below `prefix`, and then the folders that are empty.
pub(super) fn uninstall(prefix: &Path) -> Outcome {
    let manifest = prefix.join(MANIFEST);
    let list = fs::read_to_string(&manifest).map_err(failed(&manifest))?;
    for path in list.lines().map(|path| prefix.join(path)) {
        remove(&path)?;
        let folders = path.ancestors().skip(1).take_while(|folder| *folder != prefix);
        for folder in folders {
            // This fails while something else is in it: then the folder stays.
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// `path` relative to `folder`.
fn relative(path: &Path, folder: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned()
}
