//! Environments of Python, with packages of the package registry, below the target folder.
//!
//! uv makes them. It links packages from its own cache: an environment with PyTorch takes seconds
//! where pip takes minutes, and a second one, or one in a fresh clone, no space. uv itself is
//! installed by pip, once.

use std::path::PathBuf;

use steps::{Outcome, Step, output, run, run_all};

const UV_VERSION: &str = "0.13.9";
/// What checks the Python, C and C++ of the repository.
const LINTERS: [&str; 4] =
    ["mypy==2.4.1", "ruff==0.17.6", "clang-format==23.1.5", "clang-tidy==23.1.4"];
/// The Python that is checked.
const LINTED: [&str; 6] = ["benches", "c_tests", "crates", "examples", "python", "tests"];

/// Installs `packages`, each as pip takes it (`name==version`), into the environment `name`, made
/// with an interpreter that uv finds by the words `interpreter`. Returns the environment's Python.
pub(crate) fn install(name: &str, interpreter: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let uv = uv()?;
    let environment = steps::target_folder().join(name);
    let python = environment.join("bin/python");
    // Found on this machine, never downloaded.
    let step = |arguments: &[&str]| Step::new(&uv, arguments).set("UV_PYTHON_DOWNLOADS", "never");
    if !python.exists() {
        let mut create = step(&["venv", "--quiet", "--clear", "--python", interpreter]);
        create.extend([&environment]);
        run(&create)?;
    }
    let mut install = step(&["pip", "install", "--quiet", "--python"]);
    install.extend([&python]);
    install.extend(packages);
    run(&install)?;
    Ok(python)
}

/// The version of `package` that the registry has, if it is newer than the one in the environment
/// `name`.
pub(crate) fn newer(name: &str, package: &str) -> Result<Option<String>, String> {
    let python = steps::target_folder().join(name).join("bin/python");
    let mut list = Step::new(uv()?, &["pip", "list", "--outdated", "--format", "json", "--python"]);
    list.extend([&python]);
    Ok(latest_version(&output(&list)?, package))
}

/// The latest version of `package` in a list of outdated packages, which uv writes as JSON.
fn latest_version(list: &str, package: &str) -> Option<String> {
    let (_, entry) = list.split_once(&format!(r#""name":"{package}""#))?;
    let (entry, _) = entry.split_once('}')?;
    let (_, version) = entry.split_once(r#""latest_version":""#)?;
    Some(version.split_once('"')?.0.to_owned())
}

/// The program uv, installed if it is missing.
fn uv() -> Result<PathBuf, String> {
    let environment = steps::target_folder().join("uv-venv");
    let uv = environment.join("bin/uv");
    if output(&Step::new(&uv, &["--version"])).is_ok_and(|text| text.contains(UV_VERSION)) {
        return Ok(uv);
    }
    let mut create = Step::new("python3", &["-m", "venv", "--clear"]);
    create.extend([&environment]);
    run(&create)?;
    let mut install = Step::new(environment.join("bin/python"), &["-m", "pip", "install"]);
    install.extend(["--quiet", "--disable-pip-version-check", &format!("uv=={UV_VERSION}")]);
    run(&install)?;
    Ok(uv)
}

/// Checks the Python of the repository and the form of its C and C++. Of Python it checks the form,
/// mistakes that ruff knows, and the types of the package and of the long runs. PyTorch and its
/// like are not installed for that, and are any type.
pub(crate) fn lint() -> Outcome {
    let python = install("lint-venv", "python3", &LINTERS)?;
    let ruff = |arguments: &[&str]| {
        let mut step = Step::new(python.with_file_name("ruff"), arguments);
        step.extend(LINTED);
        step
    };
    let cache = steps::target_folder().join("lint-venv/mypy-cache");
    let types = |arguments: &[&str]| {
        let mut step = Step::new(python.with_file_name("mypy"), arguments);
        step.extend([std::ffi::OsStr::new("--cache-dir"), cache.as_os_str()]);
        step.within(steps::root().join("python"))
    };
    let mut benches = types(&["--follow-imports", "silent"]);
    benches.extend(["../benches/long_runs", "../benches/synthetic"]);
    let mut form = Step::new(python.with_file_name("clang-format"), &["--dry-run", "--Werror"]);
    form.extend(tracked(&["c_tests/*.[ch]", "c_tests/*.[ch]pp", "include/genesis/*.hpp"])?);
    run_all(&[
        ruff(&["format", "--check", "--quiet"]),
        ruff(&["check", "--quiet"]),
        types(&["genesis"]),
        benches.set("MYPYPATH", "../tests/torch"),
        form,
    ])
}

/// Has clang-tidy look for mistakes in the C and C++ of the tests and the headers. `mxnet` is left
/// out: that would need MXNet's headers.
pub(crate) fn tidy() -> Outcome {
    let python = install("lint-venv", "python3", &LINTERS)?;
    let tidy = |sources: Vec<String>, standard: &str| {
        let mut step = Step::new(python.with_file_name("clang-tidy"), &["--quiet"]);
        step.extend(sources);
        step.extend(["--", standard, "-Iinclude"]);
        step
    };
    let c = tracked(&["c_tests/*.c", ":!c_tests/consumer", ":!c_tests/mxnet"])?;
    run_all(&[tidy(c, "-std=c99"), tidy(vec!["c_tests/allocator.cpp".to_owned()], "-std=c++17")])
}

/// The files of the repository that match one of `patterns`, as git does.
fn tracked(patterns: &[&str]) -> Result<Vec<String>, String> {
    let mut list = Step::new("git", &["ls-files", "--"]);
    list.extend(patterns);
    Ok(output(&list)?.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::latest_version;

    #[test]
    fn the_latest_version_is_that_of_the_package() {
        let list = r#"[{"name":"setuptools","version":"1","latest_version":"84.2"},
            {"name":"torch","version":"2.11.0","latest_version":"2.15.0","latest_filetype":"w"}]"#;
        assert_eq!(latest_version(list, "torch").as_deref(), Some("2.15.0"));
        assert_eq!(latest_version(list, "tor"), None);
        assert_eq!(latest_version("[]", "torch"), None);
    }
}
