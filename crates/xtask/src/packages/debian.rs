//! The Debian packages: `libgenesis0`, `libgenesis-dev` and `genesis`, as Debian divides a library.
//!
//! Put together by dpkg-deb from the tree with Debian's folders. They depend on nothing but the C
//! library and the compiler's own, so they serve Debian since 11 and Ubuntu since 20.04.

use std::fs;
use std::path::{Path, PathBuf};

use super::build::{Built, SOVERSION, VERSION, create, failed, remove, scratch};
use super::tree::{self, Content, Entry, Layout, Part};
use super::{dist, source_date};
use crate::steps::{Outcome, Step, output, root, run};

/// The packages, and the part of the tree that each has.
pub(super) const PACKAGES: [(&str, Part); 3] = [
    ("libgenesis0", Part::Runtime),
    ("libgenesis-dev", Part::Development),
    ("genesis", Part::Program),
];

/// Debian's name of this machine's processor.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The folder of libraries of this machine's kind, below the prefix.
pub(super) fn library_folder() -> String {
    format!("lib/{}-linux-gnu", std::env::consts::ARCH)
}

/// The file of the package `name`.
pub(super) fn file(name: &str) -> PathBuf {
    dist::folder().join(format!("{name}_{VERSION}_{}.deb", architecture()))
}

/// Makes all three.
pub(super) fn packages(built: &Built) -> Outcome {
    let layout = Layout { library_folder: library_folder(), fixed_prefix: Some("/usr") };
    let entries = tree::entries(built, &layout)?;
    for (name, part) in PACKAGES {
        package(name, part, &entries)?;
    }
    Ok(())
}

fn package(name: &str, part: Part, entries: &[Entry]) -> Outcome {
    let staging = scratch().join("debian").join(name);
    remove(&staging)?;
    let usr = staging.join("usr");
    let mut own: Vec<Entry> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.part == part) {
        let content = match &entry.content {
            Content::Copy(path) => Content::Copy(path.clone()),
            Content::Text(text) => Content::Text(text.clone()),
            Content::Link(to) => Content::Link(to.clone()),
        };
        own.push(Entry { path: debians(&entry.path), content, part });
    }
    own.extend(documents(name, part, entries)?);
    tree::write(&own, &usr)?;
    for entry in own.iter().filter(|entry| entry.path.contains("/man/")) {
        compress(&usr.join(&entry.path))?;
    }
    compress(&usr.join("share/doc").join(name).join("changelog"))?;
    control(name, part, &staging)?;
    let mut pack = Step::new("dpkg-deb", &["--root-owner-group", "-Zxz", "--build"]);
    pack.extend([&staging, &file(name)]);
    run(&pack.set("SOURCE_DATE_EPOCH", source_date()?))
}

/// Where Debian has what a shell looks for elsewhere.
fn debians(path: &str) -> String {
    path.replace("zsh/site-functions", "zsh/vendor-completions")
}

/// What each package has in its own folder of documents.
fn documents(name: &str, part: Part, entries: &[Entry]) -> Result<Vec<Entry>, String> {
    let text = |file: &str, text| Entry {
        path: format!("share/doc/{name}/{file}"),
        content: Content::Text(text),
        part,
    };
    let when = format!("--date=@{}", source_date()?);
    let when = output(&Step::new("date", &["--utc", "--rfc-email", &when]))?;
    let changelog = filled("changelog.in", name)?.replace("@date@", when.trim());
    let mut documents =
        vec![text("copyright", filled("copyright.in", name)?), text("changelog", changelog)];
    // Those who need any of it need the library.
    if part == Part::Runtime {
        documents.push(Entry {
            path: format!("share/lintian/overrides/{name}"),
            content: Content::Text(filled(&format!("{name}.lintian-overrides"), name)?),
            part,
        });
        for entry in entries.iter().filter(|entry| entry.part == Part::Documents) {
            let file = Path::new(&entry.path).file_name().unwrap_or_default().to_string_lossy();
            if let Content::Text(content) = &entry.content {
                documents.push(text(&file, content.clone()));
            }
        }
    }
    Ok(documents)
}

/// The folder DEBIAN, which dpkg reads.
fn control(name: &str, part: Part, staging: &Path) -> Outcome {
    let size = output(&Step::new("du", &["--summarize", "--apparent-size"]).within(staging))?;
    let size = size.split_whitespace().next().unwrap_or_default().to_owned();
    let folder = staging.join("DEBIAN");
    create(&folder)?;
    let write = |file: &str, text: String| {
        let path = folder.join(file);
        fs::write(&path, text).map_err(failed(&path))
    };
    let control = filled(&format!("{name}.control.in"), name)?.replace("@size@", &size);
    write("control", control)?;
    if part == Part::Runtime {
        write("triggers", "activate-noawait ldconfig\n".to_owned())?;
        write("shlibs", format!("libgenesis {SOVERSION} {name} (>= {VERSION})\n"))?;
    }
    let sums = "find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums";
    run(&Step::new("sh", &["-c", sums]).within(staging))
}

/// A file of `packaging/debian` with the names between `@` replaced.
fn filled(template: &str, name: &str) -> Result<String, String> {
    let path = root().join("packaging/debian").join(template);
    let text = fs::read_to_string(&path).map_err(failed(&path))?;
    Ok(text
        .replace("@package@", name)
        .replace("@version@", VERSION)
        .replace("@architecture@", architecture()))
}

fn compress(file: &Path) -> Outcome {
    let mut compress = Step::new("gzip", &["-9", "--no-name", "--force"]);
    compress.extend([file]);
    output(&compress).map(|_| ())
}
