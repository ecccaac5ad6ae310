//! A source file as tokens: what it defines, imports and names.

use std::collections::BTreeSet;

/// The contents of one file.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// The file's own module.
    pub(crate) module: Vec<String>,
    /// Modules with a body in this file.
    pub(crate) modules: Vec<Vec<String>>,
    /// Names of items, at any depth.
    pub(crate) defined: BTreeSet<String>,
    pub(crate) uses: Vec<Use>,
    /// Paths in code, with the module they stand in.
    pub(crate) paths: Vec<(Vec<String>, Vec<String>)>,
    /// True if the file has only `mod` and `use` lines.
    pub(crate) is_facade: bool,
}

/// One name that a `use` brings: `path` as `name`, or `*` for all of `path`.
#[derive(Debug)]
pub(crate) struct Use {
    /// The module that the `use` stands in.
    pub(crate) module: Vec<String>,
    pub(crate) path: Vec<String>,
    pub(crate) name: String,
}

impl Source {
    pub(crate) fn read(module: Vec<String>, text: &str) -> Self {
        let mut source = Self { module: module.clone(), is_facade: true, ..Self::default() };
        let tokens = tokens(text);
        Reader { tokens: &tokens, at: 0, module, source: &mut source }.items(tokens.len());
        source
    }

    /// The `use` in `module` that brings `name`, if the file has one.
    pub(crate) fn imported(&self, module: &[String], name: &str) -> Option<&Use> {
        self.uses.iter().find(|one| one.name == name && one.module == module)
    }
}

/// Words, `::` as one token, and every other character by itself.
fn tokens(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        let rest = &characters[at..];
        let length = match rest {
            ['/', '/', ..] => length_until(rest, &['\n']),
            ['/', '*', ..] => length_until(rest, &['*', '/']),
            ['r', '"', ..] | ['r', '#', '"' | '#', ..] => raw_string_length(rest),
            ['"', ..] => string_length(rest),
            ['\'', '\\', ..] => 3 + length_until(&rest[3..], &['\'']),
            ['\'', _, '\'', ..] => 3,
            [':', ':', ..] => {
                tokens.push("::".to_owned());
                2
            }
            [first, ..] if first.is_alphanumeric() || *first == '_' => {
                let is_part = |one: &&char| one.is_alphanumeric() || **one == '_';
                let word: String = rest.iter().take_while(is_part).collect();
                let length = word.chars().count();
                tokens.push(word);
                length
            }
            [first, ..] => {
                if !first.is_whitespace() {
                    tokens.push(first.to_string());
                }
                1
            }
            [] => break,
        };
        at += length;
    }
    tokens
}

/// How far it is to the end of the first `end`.
fn length_until(text: &[char], end: &[char]) -> usize {
    let found = text.windows(end.len()).position(|window| window == end);
    found.map_or(text.len(), |at| at + end.len())
}

fn string_length(text: &[char]) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != '"' {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn raw_string_length(text: &[char]) -> usize {
    let hashes = text[1..].iter().take_while(|one| **one == '#').count();
    if text.get(1 + hashes) != Some(&'"') {
        return 1 + hashes; // a raw identifier
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    2 + hashes + length_until(&text[2 + hashes..], &end)
}

struct Reader<'a> {
    tokens: &'a [String],
    at: usize,
    module: Vec<String>,
    source: &'a mut Source,
}

impl Reader<'_> {
    /// Reads everything up to `end`.
    fn items(&mut self, end: usize) {
        while self.at < end {
            match self.word(0) {
                "#" => self.attribute(),
                "use" if self.is_word(1) || self.word(1) == "{" => self.import(),
                "mod" if self.is_word(1) => self.submodule(),
                "pub" | ";" => self.at += 1,
                "(" if self.at > 0 && self.tokens[self.at - 1] == "pub" => self.skip_group(),
                _ => {
                    self.source.is_facade = false;
                    self.code();
                }
            }
        }
    }

    /// `mod name;`, or a module with a body.
    fn submodule(&mut self) {
        let name = self.word(1).to_owned();
        self.source.defined.insert(name.clone());
        self.at += 2;
        if self.word(0) != "{" {
            return;
        }
        self.source.is_facade = false;
        let start = self.at;
        self.skip_group();
        let end = self.at;
        self.at = start + 1;
        self.module.push(name);
        self.source.modules.push(self.module.clone());
        self.items(end - 1);
        self.module.pop();
        self.at = end;
    }

    /// One token of code, or a path.
    fn code(&mut self) {
        const ITEMS: [&str; 8] =
            ["fn", "struct", "enum", "trait", "const", "static", "type", "union"];
        let is_macro = self.word(0) == "macro_rules";
        if (ITEMS.contains(&self.word(0)) && self.is_word(1)) || is_macro {
            let name = self.word(if is_macro { 2 } else { 1 }).to_owned();
            self.source.defined.insert(name);
        }
        if !self.is_word(0) || self.word(1) != "::" {
            self.at += 1;
            return;
        }
        let mut path = vec![self.word(0).to_owned()];
        while self.word(1) == "::" && self.is_word(2) {
            path.push(self.word(2).to_owned());
            self.at += 2;
        }
        // `$crate` is a crate's root in any crate, and `<T>::x` no path from here.
        self.source.paths.push((self.module.clone(), path));
        self.at += 1;
        if self.word(0) == "::" {
            self.at += 1;
        }
    }

    /// Skips an attribute; `#[cfg(test)]` with the item that it stands before.
    fn attribute(&mut self) {
        self.at += 1;
        if self.word(0) == "!" {
            self.at += 1;
        }
        let start = self.at;
        self.skip_group();
        let is_test = self.tokens[start..self.at].concat() == "[cfg(test)]";
        while is_test && self.at < self.tokens.len() {
            match self.word(0) {
                ";" => return self.at += 1,
                "{" => return self.skip_group(),
                "(" | "[" => self.skip_group(),
                _ => self.at += 1,
            }
        }
    }

    fn import(&mut self) {
        self.at += 1;
        self.tree(&mut Vec::new());
    }

    /// A tree of a `use` below `prefix`.
    fn tree(&mut self, prefix: &mut Vec<String>) {
        let length = prefix.len();
        loop {
            match self.word(0) {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while self.at < self.tokens.len() && self.word(0) != "}" {
                        self.tree(prefix);
                        if self.word(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    break;
                }
                "*" => {
                    self.at += 1;
                    self.add(prefix.clone(), "*".to_owned());
                    break;
                }
                word => {
                    // `self` in a group is the prefix.
                    if word != "self" || prefix.is_empty() {
                        prefix.push(word.to_owned());
                    }
                    self.at += 1;
                    if self.word(0) != "::" {
                        let mut name = prefix.last().cloned().unwrap_or_default();
                        if self.word(0) == "as" {
                            name = self.word(1).to_owned();
                            self.at += 2;
                        }
                        self.add(prefix.clone(), name);
                        break;
                    }
                }
            }
        }
        prefix.truncate(length);
    }

    fn add(&mut self, path: Vec<String>, name: String) {
        self.source.uses.push(Use { module: self.module.clone(), path, name });
    }

    /// Skips a group in brackets, whose first token is the next.
    fn skip_group(&mut self) {
        let mut depth = 0usize;
        while self.at < self.tokens.len() {
            match self.word(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// The token `ahead` of the next one; empty at the end.
    fn word(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn is_word(&self, ahead: usize) -> bool {
        self.word(ahead).starts_with(|first: char| first.is_alphanumeric() || first == '_')
    }
}
