//! What an installation consists of: each file, where it goes below the prefix, and which part of
//! the whole it belongs to.
//!
//! The tree may be moved: the pkg-config and CMake files find everything from where they lie. What
//! is installed is listed in a manifest, by which it is removed again.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::build::{Built, SOVERSION, SYSTEM_LIBRARIES, VERSION, create, failed, remove};
use super::{licences, sbom};
use crate::steps::{Outcome, root};

/// The list of what was installed, among the documents.
const MANIFEST: &str = "share/doc/genesis/installed-files.txt";

/// Which package of a distribution that has several a file belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    /// What programs need that were linked with the library, or are run with it.
    Runtime,
    /// What compiling and linking needs.
    Development,
    /// The command.
    Program,
    /// Licences and the like.
    Documents,
}

/// What a file is.
#[derive(Debug)]
pub(super) enum Content {
    Copy(PathBuf),
    Text(String),
    /// A link to a file of that name beside it.
    Link(String),
}

/// One file.
#[derive(Debug)]
pub(super) struct Entry {
    /// Below the prefix.
    pub(super) path: String,
    pub(super) content: Content,
    pub(super) part: Part,
}

/// Where things go.
#[derive(Debug)]
pub(super) struct Layout {
    /// The folder of libraries, below the prefix.
    pub(super) library_folder: String,
    /// The prefix, for a tree that is never moved; else it is found from the files.
    pub(super) fixed_prefix: Option<&'static str>,
}

/// Every file, but for the manifest.
pub(super) fn entries(built: &Built, layout: &Layout) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut add = |part, path: String, content| entries.push(Entry { path, content, part });
    let lib = &layout.library_folder;
    let (real, linked) = (format!("libgenesis.so.{VERSION}"), format!("libgenesis.so.{SOVERSION}"));
    add(Part::Runtime, format!("{lib}/{real}"), Content::Copy(built.library.clone()));
    add(Part::Runtime, format!("{lib}/{linked}"), Content::Link(real));
    let preload = format!("{lib}/libgenesis_preload.so");
    add(Part::Runtime, preload, Content::Copy(built.preload.clone()));
    add(Part::Development, format!("{lib}/libgenesis.so"), Content::Link(linked));
    let archive = format!("{lib}/libgenesis.a");
    add(Part::Development, archive, Content::Copy(built.archive.clone()));
    for (template, path) in [
        ("genesis.pc.in", "pkgconfig/genesis.pc"),
        ("genesis-static.pc.in", "pkgconfig/genesis-static.pc"),
        ("GenesisConfig.cmake.in", "cmake/Genesis/GenesisConfig.cmake"),
        ("GenesisConfigVersion.cmake.in", "cmake/Genesis/GenesisConfigVersion.cmake"),
    ] {
        let text = Content::Text(filled(template, layout)?);
        add(Part::Development, format!("{lib}/{path}"), text);
    }
    for header in files_under(&root().join("include"))? {
        let path = format!("include/{}", relative(&header, &root().join("include")));
        add(Part::Development, path, Content::Copy(header));
    }
    add(Part::Program, "bin/genesis".to_owned(), Content::Copy(built.program.clone()));
    for page in files_under(&built.pages)? {
        add(Part::Program, relative(&page, &built.pages), Content::Copy(page));
    }
    let mut document = |name: &str, content| {
        add(Part::Documents, format!("share/doc/genesis/{name}"), content);
    };
    for name in ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"] {
        document(name, Content::Copy(root().join(name)));
    }
    document(licences::FILE_NAME, Content::Text(licences::text()?));
    document(sbom::FILE_NAME, Content::Text(sbom::text()?));
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(entries)
}

/// A file of `packaging/` with the names between `@` replaced.
fn filled(template: &str, layout: &Layout) -> Result<String, String> {
    let path = root().join("packaging").join(template);
    let text = fs::read_to_string(&path).map_err(failed(&path))?;
    let up = layout.library_folder.split('/').map(|_| "..").collect::<Vec<_>>().join("/");
    let prefix = match layout.fixed_prefix {
        Some(prefix) => prefix.to_owned(),
        None => format!("${{pcfiledir}}/../{up}"),
    };
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
pub(super) fn write<'a>(entries: impl IntoIterator<Item = &'a Entry>, prefix: &Path) -> Outcome {
    for entry in entries {
        let path = prefix.join(&entry.path);
        create(path.parent().unwrap_or(prefix))?;
        // A library that a running program has open must not change under it.
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
    let manifest =
        Entry { path: MANIFEST.into(), content: Content::Text(list), part: Part::Documents };
    write(entries.iter().chain([&manifest]), prefix)
}

/// Removes what the list below `prefix` names, and the folders that are empty then.
pub(super) fn uninstall(prefix: &Path) -> Outcome {
    let manifest = prefix.join(MANIFEST);
    let list = fs::read_to_string(&manifest).map_err(failed(&manifest))?;
    for path in list.lines().map(|path| prefix.join(path)) {
        remove(&path)?;
        let folders = path.ancestors().skip(1).take_while(|folder| *folder != prefix);
        for folder in folders {
            // It stays where something else is in it.
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// `path` as seen from `folder`.
fn relative(path: &Path, folder: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned()
}

/// The files in `folder` and below.
pub(super) fn files_under(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        if path.is_dir() {
            files.extend(files_under(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
