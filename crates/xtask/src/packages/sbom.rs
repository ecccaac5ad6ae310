//! The bill of materials: what is inside, in CycloneDX's JSON.
//!
//! Not cargo-cyclonedx: it writes a document for each crate of the workspace, without the C library
//! inside zstd-sys and Rust's standard library, and is 120 crates to compile.

use serde_json::{Value, json};

use steps::{Step, output};

use super::dependencies::Dependency;
use super::licences;
use super::version::{VERSION, source_date_text};

/// Its name among the documents of a package.
pub(super) const FILE_NAME: &str = "genesis.cdx.json";

/// The document.
pub(super) fn text(crates: &[Dependency]) -> Result<String, String> {
    let mut components: Vec<Value> = crates.iter().map(component).collect();
    let (standard_library, zstd) = (standard_library()?, zstd(crates));
    components.push(standard_library.clone());
    components.extend(zstd.clone());
    let mut uses: Vec<Value> = crates
        .iter()
        .map(|one| {
            let mut used: Vec<String> =
                one.uses.iter().map(|&index| reference(&crates[index])).collect();
            if let (Some(zstd), "zstd-sys") = (&zstd, one.name.as_str()) {
                used.extend(zstd["bom-ref"].as_str().map(str::to_owned));
            }
            json!({ "ref": reference(one), "dependsOn": used })
        })
        .collect();
    let roots: Vec<String> = crates.iter().filter(|one| one.is_own).map(reference).collect();
    uses.push(json!({ "ref": "genesis", "dependsOn": roots }));
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": source_date_text("+%Y-%m-%dT%H:%M:%SZ")?,
            "component": {
                "type": "library", "bom-ref": "genesis", "name": "genesis", "version": VERSION,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": components,
        "dependencies": uses,
    });
    let text = serde_json::to_string_pretty(&document);
    text.map(|text| text + "\n").map_err(|error| format!("{FILE_NAME}: {error}"))
}

fn reference(one: &Dependency) -> String {
    format!("pkg:cargo/{}@{}", one.name, one.version.replace('+', "%2B"))
}

fn component(one: &Dependency) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(one),
        "name": one.name,
        "version": one.version,
        "purl": reference(one),
        "licenses": [{ "expression": one.licence }],
    });
    if let Some(sha256) = &one.sha256 {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
    }
    if let Some(url) = &one.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": url }]);
    }
    component
}

/// Rust's standard library: it comes with the compiler, so cargo does not list it.
fn standard_library() -> Result<Value, String> {
    let version = output(&Step::new("rustc", &["--version"]))?;
    let version = version.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok(json!({
        "type": "library", "bom-ref": format!("rust-std@{version}"), "name": "rust-std",
        "version": version, "licenses": [{ "expression": licences::OF_RUST }],
    }))
}

/// The C library that zstd-sys compiles; its version is the last part of the crate's version.
fn zstd(crates: &[Dependency]) -> Option<Value> {
    let sys = crates.iter().find(|one| one.name == "zstd-sys")?;
    let version = sys.version.split_once("+zstd.")?.1;
    let reference = format!("pkg:github/facebook/zstd@v{version}");
    Some(json!({
        "type": "library", "bom-ref": reference, "name": "zstd", "version": version,
        "purl": reference, "licenses": [{ "expression": "BSD-3-Clause" }],
    }))
}
