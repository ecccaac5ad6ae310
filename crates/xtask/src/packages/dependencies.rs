//! What is inside the libraries and the program: the crates they are compiled from, as cargo
//! resolves them for this machine, and the C library that one of them brings along.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;

use super::build::failed;
use crate::steps::{output, root};

/// Where the walk begins.
const ROOTS: [&str; 3] = ["genesis", "genesis-cli", "genesis-preload"];

/// A crate.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) licence: String,
    pub(super) repository: Option<String>,
    /// Whether it is this project's own.
    pub(super) is_own: bool,
    /// Of the archive in the registry.
    pub(super) sha256: Option<String>,
    /// Its sources.
    pub(super) folder: PathBuf,
    /// Indices of those that it uses, in the list of all.
    pub(super) uses: Vec<usize>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// None for what is linked; else for builds or for tests.
    kind: Option<String>,
}

/// All of them, by name and version.
pub(super) fn dependencies() -> Result<Vec<Dependency>, String> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["metadata", "--format-version=1", "--locked", "--filter-platform", &triple];
    let metadata: Metadata = serde_json::from_str(&output(&crate::cargo(&arguments))?)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let checksums = checksums()?;
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let mut packages: Vec<&Package> = metadata.packages.iter().collect();
    packages.sort_by_key(|package| (&package.name, &package.version));
    let linked = linked(&packages, &nodes);
    packages.retain(|package| linked.contains(package.id.as_str()));
    let index_of: BTreeMap<&str, usize> =
        packages.iter().enumerate().map(|(index, package)| (package.id.as_str(), index)).collect();
    let dependency = |package: &&Package| Dependency {
        name: package.name.clone(),
        version: package.version.clone(),
        // Before SPDX there was a slash.
        licence: package
            .license
            .clone()
            .unwrap_or_default()
            .replace(" / ", "/")
            .replace('/', " OR "),
        repository: package.repository.clone(),
        is_own: package.source.is_none(),
        sha256: checksums.get(&(package.name.clone(), package.version.clone())).cloned(),
        folder: package.manifest_path.parent().map(PathBuf::from).unwrap_or_default(),
        uses: uses(&nodes, &package.id).filter_map(|id| index_of.get(id).copied()).collect(),
    };
    Ok(packages.iter().map(dependency).collect())
}

/// The crates that `id` is linked with or is compiled by: no build scripts, no tests.
fn uses<'a>(nodes: &BTreeMap<&str, &'a Node>, id: &str) -> impl Iterator<Item = &'a str> {
    let edges = nodes.get(id).map_or(&[][..], |node| &node.deps);
    let is_linked = |edge: &&Edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none());
    edges.iter().filter(is_linked).map(|edge| edge.pkg.as_str())
}

fn linked<'a>(packages: &[&'a Package], nodes: &BTreeMap<&str, &'a Node>) -> BTreeSet<&'a str> {
    let roots = packages.iter().filter(|package| ROOTS.contains(&package.name.as_str()));
    let mut open: Vec<&str> = roots.map(|package| package.id.as_str()).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(uses(nodes, id));
        }
    }
    found
}

/// What `Cargo.lock` has of each name and version.
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
