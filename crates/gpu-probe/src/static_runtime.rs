//! Programs with CUDA's runtime linked into them, built on the machine they run on: one that uses
//! Genesis, and one that does not know of it, under the preload.
//!
//! `nvcc` links the runtime statically unless told otherwise. Without it, any C compiler will do,
//! with the `libcudart_static.a` and headers of a toolkit or of CUDA's Python wheels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::child;
use crate::folder::{Folder, Scratch};
use crate::report::Check;
use crate::sections::Found;

/// Folders of toolkits, after those that `CUDA_HOME` and `CUDA_PATH` name.
const TOOLKITS: [&str; 2] = ["/usr/local/cuda", "/opt/cuda"];
const LIBRARY: &str = "libcudart_static.a";
/// The headers of the runtime that are needed to compile.
pub(crate) const HEADERS: [&str; 2] = ["cuda_runtime_api.h", "crt/host_defines.h"];

/// How the program can be built.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Toolkit {
    Nvcc(PathBuf),
    Compiler { headers: PathBuf, library: PathBuf },
}

/// Builds and runs the program.
pub(crate) fn checks(folder: &Folder, python: &Path, limit: Duration) -> Found<Vec<Check>> {
    if folder.simulated {
        return Found::skipped(
            "Skipped: such a program asks the driver for tables that the simulated driver has not.",
        );
    }
    let Some(toolkit) = find(&toolkits(python)) else {
        return Found::skipped(format!("Skipped: there is neither nvcc nor {LIBRARY} here."));
    };
    build_and_run(folder, &toolkit, limit).into()
}

fn build_and_run(
    folder: &Folder,
    toolkit: &Toolkit,
    limit: Duration,
) -> Result<Vec<Check>, String> {
    let scratch = Scratch::make()?;
    let build = |name: &str| {
        let program = scratch.path().join(name);
        let source = folder.file(&format!("programs/{name}.c"))?;
        let built = child::run(compile(folder, toolkit, &source, &program), limit / 4)?;
        if !built.is_success() {
            return Err(format!("{name} was not built: {}.", built.reason()));
        }
        let mut command = folder.command(&program);
        command.env("LD_LIBRARY_PATH", library_path(folder));
        Ok(command)
    };
    let mut checks: Vec<Check> = child::run(build("static_runtime")?, limit / 4)?.value()?;
    let mut preloaded = build("preloaded")?;
    preloaded.env("LD_PRELOAD", folder.file("lib/libgenesis_preload.so")?);
    checks.extend(child::run(preloaded, limit / 4)?.value::<Vec<Check>>()?);
    Ok(checks)
}

/// The folder of the library, before those that are set already.
fn library_path(folder: &Folder) -> std::ffi::OsString {
    let mut path = folder.path("lib").into_os_string();
    if let Some(before) = std::env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty()) {
        path.push(":");
        path.push(before);
    }
    path
}

fn compile(folder: &Folder, toolkit: &Toolkit, source: &Path, program: &Path) -> Command {
    let mut command = match toolkit {
        Toolkit::Nvcc(nvcc) => {
            let mut command = folder.command(nvcc);
            command.args(["-cudart", "static"]).arg(source);
            command
        }
        Toolkit::Compiler { headers, library } => {
            let mut command = folder.command("cc");
            command.arg(source).arg("-I").arg(headers).arg(library);
            command.args(["-lpthread", "-ldl", "-lrt", "-lm"]);
            command
        }
    };
    command.arg("-I").arg(folder.path("include"));
    command.arg("-L").arg(folder.path("lib")).arg("-lgenesis").arg("-o").arg(program);
    command
}

/// Folders that may hold a toolkit, or a part of one.
pub(crate) fn toolkits(python: &Path) -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    let mut folders: Vec<PathBuf> = named.map(PathBuf::from).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The folder of a program is `bin` of its toolkit.
    let beside_nvcc = std::env::split_paths(&path).filter(|bin| bin.join("nvcc").is_file());
    folders.extend(beside_nvcc.filter_map(|bin| bin.parent().map(Path::to_owned)));
    folders.extend(TOOLKITS.map(PathBuf::from));
    folders.extend(wheels(python));
    folders
}

/// The folders of CUDA's wheels in Python's packages.
fn wheels(python: &Path) -> Vec<PathBuf> {
    const SCRIPT: &str = "import nvidia; print('\\n'.join(nvidia.__path__))";
    let output = Command::new(python).args(["-c", SCRIPT]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let roots: Vec<PathBuf> = text.unwrap_or_default().lines().map(PathBuf::from).collect();
    let entries = roots.iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// The first way to build in `folders`: `nvcc` anywhere, else a library with its headers.
fn find(folders: &[PathBuf]) -> Option<Toolkit> {
    let nvcc = folders.iter().map(|folder| folder.join("bin/nvcc")).find(|path| path.is_file());
    nvcc.map(Toolkit::Nvcc).or_else(|| folders.iter().find_map(|folder| parts(folder)))
}

/// A static runtime and its headers in `folder`.
fn parts(folder: &Path) -> Option<Toolkit> {
    let headers = folder.join("include");
    let is_complete = HEADERS.iter().all(|header| headers.join(header).is_file());
    let libraries = ["lib64", "lib"].map(|inside| folder.join(inside).join(LIBRARY));
    let library = libraries.into_iter().find(|library| library.is_file())?;
    is_complete.then_some(Toolkit::Compiler { headers, library })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, files: &[&str]) {
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
    }

    #[test]
    fn a_compiler_is_used_where_there_is_no_nvcc() {
        let scratch = Scratch::make().unwrap();
        let [wheel, kit, bare] = ["wheel", "kit", "bare"].map(|name| scratch.path().join(name));
        let headers = ["include/cuda_runtime_api.h", "include/crt/host_defines.h"];
        put(&bare, &["lib/libcudart_static.a"]);
        assert_eq!(find(std::slice::from_ref(&bare)), None, "without headers");
        put(&wheel, &["lib/libcudart_static.a", headers[0], headers[1]]);
        let parts = Toolkit::Compiler {
            headers: wheel.join("include"),
            library: wheel.join("lib/libcudart_static.a"),
        };
        assert_eq!(find(&[bare.clone(), wheel.clone()]), Some(parts));
        put(&kit, &["bin/nvcc"]);
        assert_eq!(find(&[wheel, kit.clone(), bare]), Some(Toolkit::Nvcc(kit.join("bin/nvcc"))));
    }
}
