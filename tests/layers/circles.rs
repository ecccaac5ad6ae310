//! Circles of imports between the files of one crate.
//!
//! The rule: file A imports file B if A's code has a path that names something of B, in a `use` or
//! in place: `crate::b::Name`, `super::b::Name`, `b::Name` after `mod b;` or `use crate::b;`.
//! - A *facade* is a file of `mod` and `use` lines alone. It imports nothing and is imported by
//!   no file: a name taken from it counts as an import of the file that defines the name.
//! - A module is part of its parents: what it takes from the file of a parent does not count.
//! - In a file that is no facade every `use` counts, also `pub use`. `mod b;` alone is no import.
//! - Comments, strings, attributes and items under `#[cfg(test)]` do not count, nor do calls of
//!   methods: they need no import.
//!
//! Files are read as tokens and not compiled, so a name made by a macro belongs to the file
//! where its path ends.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, Use};

/// A module by its path from the crate's root.
type Module = Vec<String>;

/// The files of a crate, each as (folder of the sources, path below it, text).
pub(crate) type Files = Vec<(String, String, String)>;

struct Crate {
    names: Vec<String>,
    sources: Vec<Source>,
    /// The file of each module, inline modules included.
    modules: BTreeMap<Module, usize>,
}

/// The circles among `files`, each as text: its files, then the imports that tie them.
pub(crate) fn circles(files: &Files) -> Vec<String> {
    let house = Crate::new(files);
    let imports = house.imports();
    let reach: Vec<BTreeSet<usize>> =
        (0..house.names.len()).map(|from| reached(from, &imports)).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for file in 0..house.names.len() {
        if !reach[file].contains(&file) || seen.contains(&file) {
            continue;
        }
        let members: BTreeSet<usize> =
            reach[file].iter().copied().filter(|&other| reach[other].contains(&file)).collect();
        let mut text = format!("a circle of {} files", members.len());
        for (&(from, to), names) in &imports {
            if members.contains(&from) && members.contains(&to) {
                let names = names.iter().cloned().collect::<Vec<_>>().join(", ");
                text += &format!("\n  {} -> {}: {names}", house.names[from], house.names[to]);
            }
        }
        seen.extend(members);
        found.push(text);
    }
    found
}

/// The files that `from` imports, and those they import, and so on.
fn reached(from: usize, imports: &BTreeMap<(usize, usize), BTreeSet<String>>) -> BTreeSet<usize> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        for &(_, to) in imports.range((file, 0)..(file + 1, 0)).map(|(arrow, _)| arrow) {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

impl Crate {
    fn new(files: &Files) -> Self {
        let has_library = files.iter().any(|(_, name, _)| name == "lib.rs");
        let mut house = Self { names: Vec::new(), sources: Vec::new(), modules: BTreeMap::new() };
        for (index, (folder, name, text)) in files.iter().enumerate() {
            let source = Source::read(module_of(name, has_library), text);
            for inline in &source.modules {
                house.modules.entry(inline.clone()).or_insert(index);
            }
            house.modules.insert(source.module.clone(), index);
            house.names.push(format!("{folder}/{name}"));
            house.sources.push(source);
        }
        house
    }

    /// Every import, as (from, to), with the paths that make it.
    fn imports(&self) -> BTreeMap<(usize, usize), BTreeSet<String>> {
        let mut imports: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
        for (from, source) in self.sources.iter().enumerate().filter(|(_, one)| !one.is_facade) {
            let uses = source.uses.iter().map(|one| (&one.module, &one.path));
            let paths = source.paths.iter().map(|(module, path)| (module, path));
            for (module, path) in uses.chain(paths) {
                if let Some(to) = self.resolve(from, module, path, 0)
                    && to != from
                    && !source.module.starts_with(&self.sources[to].module)
                    && !self.sources[to].is_facade
                {
                    imports.entry((from, to)).or_default().insert(path.join("::"));
                }
            }
        }
        imports
    }

    /// The file that defines what `path` means in `module` of `file`; `None`: not in this crate.
    fn resolve(&self, file: usize, module: &Module, path: &[String], depth: u8) -> Option<usize> {
        let (first, rest) = path.split_first().filter(|_| depth < 16)?;
        match first.as_str() {
            "crate" => self.walk(&self.root(file), rest, depth),
            "self" => self.walk(module, rest, depth),
            "super" => {
                let outer = module[..module.len().checked_sub(1)?].to_vec();
                match rest.first().map(String::as_str) {
                    Some("super") => self.resolve(file, &outer, rest, depth),
                    _ => self.walk(&outer, rest, depth),
                }
            }
            name => {
                if let Some(one) = self.sources[file].imported(module, name) {
                    return self.follow(file, one, rest, depth);
                }
                let child = self.child(module, name)?;
                self.walk(&child, rest, depth)
            }
        }
    }

    /// [`Self::resolve`] of `rest` behind the name that a `use` of `file` brings.
    fn follow(&self, file: usize, one: &Use, rest: &[String], depth: u8) -> Option<usize> {
        let path: Vec<String> = one.path.iter().chain(rest).cloned().collect();
        // `use x::x` must not be resolved through itself.
        let first_is_itself = one.path.first() == Some(&one.name);
        if first_is_itself {
            let child = self.child(&one.module, &one.name)?;
            return self.walk(&child, &path[1..], depth + 1);
        }
        self.resolve(file, &one.module, &path, depth + 1)
    }

    /// The file that defines `path` in the module `at`.
    fn walk(&self, at: &Module, path: &[String], depth: u8) -> Option<usize> {
        let file = *self.modules.get(at)?;
        let Some((name, rest)) = path.split_first() else { return Some(file) };
        if let Some(child) = self.child(at, name) {
            return self.walk(&child, rest, depth);
        }
        let source = &self.sources[file];
        if source.defined.contains(name) {
            return Some(file);
        }
        if let Some(one) = source.imported(at, name) {
            return self.follow(file, one, rest, depth + 1);
        }
        let globs = source.uses.iter().filter(|one| one.name == "*" && one.module == *at);
        let through = globs.filter_map(|one| {
            let to = self.resolve(file, &one.module, &one.path, depth + 1)?;
            self.sources[to].defined.contains(name).then_some(to)
        });
        through.into_iter().next().or(Some(file))
    }

    fn child(&self, module: &Module, name: &str) -> Option<Module> {
        // Modules that a program declares lie below `src/` like the library's.
        let mut child = if module == &program() { Module::new() } else { module.clone() };
        child.push(name.to_owned());
        self.modules.contains_key(&child).then_some(child)
    }

    fn root(&self, file: usize) -> Module {
        let module = &self.sources[file].module;
        if module.first() == program().first() { module[..1].to_vec() } else { Module::new() }
    }
}

/// The root module of a program in a package with a library.
fn program() -> Module {
    vec!["main.rs".to_owned()]
}

/// The module of a file below `src/`.
fn module_of(name: &str, has_library: bool) -> Module {
    if name == "main.rs" && has_library {
        return program();
    }
    let parts = name.trim_end_matches(".rs").split('/').map(str::to_owned);
    let mut module: Module = parts.collect();
    let is_root = module.len() == 1 && ["lib", "main"].contains(&module[0].as_str());
    if is_root || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}
