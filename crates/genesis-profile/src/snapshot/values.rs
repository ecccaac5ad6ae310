//! Dictionaries and lists, written as a pickle or as JSON value by value.
//!
//! A snapshot of a million events is never in memory as a tree of values. Its call sites and keys
//! must not be repeated at every event: the pickle has each once and refers to it afterwards. A
//! serializer cannot do that, so the pickle is written here.
//!
//! The pickle has protocol 2 (PEP 307; CPython's `pickletools.py` describes the opcodes). It
//! contains only dictionaries, lists, pairs, text, integers and booleans, so loading it runs no
//! code.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::model::Site;

/// The pieces of a snapshot. In a dictionary each value follows its key; ends match begins.
pub trait Values {
    fn begin_dict(&mut self) -> io::Result<()>;
    fn end_dict(&mut self) -> io::Result<()>;
    fn begin_list(&mut self) -> io::Result<()>;
    fn end_list(&mut self) -> io::Result<()>;
    fn key(&mut self, key: &'static str) -> io::Result<()>;
    /// A key and a number.
    fn number(&mut self, key: &'static str, value: u64) -> io::Result<()>;
    /// A key and a boolean.
    fn truth(&mut self, key: &'static str, value: bool) -> io::Result<()>;
    /// A key and one of a few words.
    fn word(&mut self, key: &'static str, value: &'static str) -> io::Result<()>;
    /// Any text.
    fn text(&mut self, text: &str) -> io::Result<()>;
    /// Two numbers.
    fn pair(&mut self, first: u64, second: u64) -> io::Result<()>;
    /// The frames of call site number `index`.
    fn frames(&mut self, index: u32, site: &Site) -> io::Result<()>;
}

/// Frames as a list of dictionaries.
fn write_frames(out: &mut dyn Values, site: &Site) -> io::Result<()> {
    out.begin_list()?;
    for frame in &site.frames {
        out.begin_dict()?;
        out.key("filename")?;
        out.text(&frame.file)?;
        out.key("name")?;
        out.text(&frame.function)?;
        out.number("line", frame.line.into())?;
        out.end_dict()?;
    }
    out.end_list()
}

/// The writer of a pickle.
pub struct Pickle<'o> {
    out: &'o mut dyn Write,
    /// The entries of words and sites in the loader's memo.
    words: HashMap<&'static str, u32>,
    sites: HashMap<u32, u32>,
}

impl<'o> Pickle<'o> {
    pub fn begin(out: &'o mut dyn Write) -> io::Result<Self> {
        out.write_all(b"\x80\x02")?;
        Ok(Self { out, words: HashMap::new(), sites: HashMap::new() })
    }

    pub fn end(self) -> io::Result<()> {
        self.out.write_all(b".")
    }

    /// The memo has an entry for each word and each site, in the order of their first use.
    fn next_memo(&self) -> u32 {
        (self.words.len() + self.sites.len()) as u32
    }

    /// Stores the value just written as entry `memo`.
    fn put(&mut self, memo: u32) -> io::Result<()> {
        match u8::try_from(memo) {
            Ok(memo) => self.out.write_all(&[b'q', memo]),
            Err(_) => self.op(b'r', &memo.to_le_bytes()),
        }
    }

    fn get(&mut self, memo: u32) -> io::Result<()> {
        match u8::try_from(memo) {
            Ok(memo) => self.out.write_all(&[b'h', memo]),
            Err(_) => self.op(b'j', &memo.to_le_bytes()),
        }
    }

    fn op(&mut self, code: u8, argument: &[u8]) -> io::Result<()> {
        self.out.write_all(&[code])?;
        self.out.write_all(argument)
    }

    fn shared_word(&mut self, word: &'static str) -> io::Result<()> {
        if let Some(&memo) = self.words.get(word) {
            return self.get(memo);
        }
        let memo = self.next_memo();
        self.words.insert(word, memo);
        self.text(word)?;
        self.put(memo)
    }

    fn integer(&mut self, value: u64) -> io::Result<()> {
        if let Ok(value) = u8::try_from(value) {
            return self.op(b'K', &[value]);
        }
        if let Ok(value) = u16::try_from(value) {
            return self.op(b'M', &value.to_le_bytes());
        }
        if let Ok(value) = i32::try_from(value) {
            return self.op(b'J', &value.to_le_bytes());
        }
        // Nine bytes, so that the highest bit is no sign; unneeded ones are left out.
        let bytes = u128::from(value).to_le_bytes();
        let length = 9 - value.leading_zeros() as usize / 8;
        self.op(0x8a, &[length as u8])?;
        self.out.write_all(&bytes[..length])
    }
}

impl Values for Pickle<'_> {
    fn begin_dict(&mut self) -> io::Result<()> {
        self.out.write_all(b"}(")
    }

    fn end_dict(&mut self) -> io::Result<()> {
        self.out.write_all(b"u")
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.out.write_all(b"](")
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.out.write_all(b"e")
    }

    fn key(&mut self, key: &'static str) -> io::Result<()> {
        self.shared_word(key)
    }

    fn number(&mut self, key: &'static str, value: u64) -> io::Result<()> {
        self.shared_word(key)?;
        self.integer(value)
    }

    fn truth(&mut self, key: &'static str, value: bool) -> io::Result<()> {
        self.shared_word(key)?;
        self.out.write_all(if value { b"\x88" } else { b"\x89" })
    }

    fn word(&mut self, key: &'static str, value: &'static str) -> io::Result<()> {
        self.shared_word(key)?;
        self.shared_word(value)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        let length = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.op(b'X', &length.to_le_bytes())?;
        self.out.write_all(text.as_bytes())
    }

    fn pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        self.integer(first)?;
        self.integer(second)?;
        self.out.write_all(b"\x86")
    }

    fn frames(&mut self, index: u32, site: &Site) -> io::Result<()> {
        if let Some(&memo) = self.sites.get(&index) {
            return self.get(memo);
        }
        write_frames(self, site)?;
        let memo = self.next_memo();
        self.sites.insert(index, memo);
        self.put(memo)
    }
}

/// The writer of JSON.
pub struct Json<'o> {
    out: &'o mut dyn Write,
    /// Whether a comma comes before the next key, or value of a list.
    is_comma_due: bool,
    is_after_key: bool,
}

impl<'o> Json<'o> {
    pub fn new(out: &'o mut dyn Write) -> Self {
        Self { out, is_comma_due: false, is_after_key: false }
    }

    fn value(&mut self, text: std::fmt::Arguments) -> io::Result<()> {
        self.separate()?;
        self.out.write_fmt(text)
    }

    fn separate(&mut self) -> io::Result<()> {
        let is_comma_due = std::mem::replace(&mut self.is_comma_due, true);
        let is_after_key = std::mem::take(&mut self.is_after_key);
        if is_comma_due && !is_after_key { self.out.write_all(b",") } else { Ok(()) }
    }

    fn begin(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.separate()?;
        self.is_comma_due = false;
        self.out.write_all(bracket)
    }

    fn end(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.is_comma_due = true;
        self.out.write_all(bracket)
    }
}

impl Values for Json<'_> {
    fn begin_dict(&mut self) -> io::Result<()> {
        self.begin(b"{")
    }

    fn end_dict(&mut self) -> io::Result<()> {
        self.end(b"}")
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.begin(b"[")
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.end(b"]")
    }

    fn key(&mut self, key: &'static str) -> io::Result<()> {
        self.value(format_args!("\"{key}\":"))?;
        self.is_after_key = true;
        Ok(())
    }

    fn number(&mut self, key: &'static str, value: u64) -> io::Result<()> {
        self.key(key)?;
        self.value(format_args!("{value}"))
    }

    fn truth(&mut self, key: &'static str, value: bool) -> io::Result<()> {
        self.key(key)?;
        self.value(format_args!("{value}"))
    }

    fn word(&mut self, key: &'static str, value: &'static str) -> io::Result<()> {
        self.key(key)?;
        self.text(value)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.separate()?;
        Ok(serde_json::to_writer(&mut *self.out, text)?)
    }

    fn pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        self.value(format_args!("[{first},{second}]"))
    }

    fn frames(&mut self, _index: u32, site: &Site) -> io::Result<()> {
        write_frames(self, site)
    }
}
