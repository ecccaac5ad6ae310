//! What is inside the libraries and the program: the crates they are compiled from, as cargo
//! resolves them for this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use steps::{cargo, output, root};

use super::files::failed;

/// What ships, but for `genesis-static`, which is `genesis` once more. The walk begins here.
pub(crate) const SHIPPED: [&str; 4] =
    ["genesis", "genesis-cli", "genesis-preload", "cumem-allocator"];

/// A crate.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) licence: String,
    pub(super) repository: Option<String>,
    /// True if it is one of this workspace.
    pub(super) is_own: bool,
    /// Of its archive in the registry.
    pub(super) sha256: Option<String>,
    /// Its sources.
    pub(super) folder: PathBuf,
    /// The crates it uses, as indices in the list of all.
    pub(super) uses: Vec<usize>,
}

/// For each crate's id, the ids of the crates that it is linked with or compiled by: no build
/// scripts, no tests.
type Uses<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// All of them, by name and version.
pub(super) fn dependencies() -> Result<Vec<Dependency>, String> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["metadata", "--format-version=1", "--locked", "--filter-platform", &triple];
    let metadata: Value = serde_json::from_str(&output(&cargo(&arguments))?)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let checksums = checksums()?;
    let uses: Uses<'_> = items(&metadata["resolve"]["nodes"])
        .map(|node| (text(node, "id"), items(&node["deps"]).filter_map(linked).collect()))
        .collect();
    let mut packages: Vec<&Value> = items(&metadata["packages"]).collect();
    packages.sort_by_key(|package| (text(package, "name"), text(package, "version")));
    let reached = reached(&packages, &uses);
    packages.retain(|package| reached.contains(text(package, "id")));
    let index_of: BTreeMap<&str, usize> =
        packages.iter().enumerate().map(|(index, package)| (text(package, "id"), index)).collect();
    let dependency = |package: &&Value| {
        let (name, version) = (text(package, "name"), text(package, "version"));
        let used = uses.get(text(package, "id")).into_iter().flatten();
        Dependency {
            name: name.to_owned(),
            version: version.to_owned(),
            // Older crates write "/" for "OR".
            licence: text(package, "license").replace(" / ", "/").replace('/', " OR "),
            repository: package["repository"].as_str().map(str::to_owned),
            is_own: package["source"].is_null(),
            sha256: checksums.get(&(name.to_owned(), version.to_owned())).cloned(),
            folder: Path::new(text(package, "manifest_path")).with_file_name(""),
            uses: used.filter_map(|id| index_of.get(id).copied()).collect(),
        }
    };
    Ok(packages.iter().map(dependency).collect())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The text `name` of `object`; empty if there is none.
fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

/// The id at the end of an edge, if it is one of linking: those for builds and tests have a kind.
fn linked(edge: &Value) -> Option<&str> {
    items(&edge["dep_kinds"]).any(|kind| kind["kind"].is_null()).then(|| text(edge, "pkg"))
}

/// The ids of [`SHIPPED`] and of everything they use, directly or not.
fn reached<'a>(packages: &[&'a Value], uses: &Uses<'a>) -> BTreeSet<&'a str> {
    let roots = packages.iter().filter(|package| SHIPPED.contains(&text(package, "name")));
    let mut open: Vec<&str> = roots.map(|package| text(package, "id")).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(uses.get(id).into_iter().flatten());
        }
    }
    found
}

/// The checksums in `Cargo.lock`, by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>, String> {
    let path = root().join("Cargo.lock");
    let lock = std::fs::read_to_string(&path).map_err(failed(&path))?;
    let value = |package: &str, name: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
        line.and_then(|rest| rest.strip_suffix('"')).map(str::to_owned)
    };
    let packages = lock.split("[[package]]");
    Ok(packages
        .filter_map(|package| {
            let key = (value(package, "name")?, value(package, "version")?);
            Some((key, value(package, "checksum")?))
        })
        .collect())
}
