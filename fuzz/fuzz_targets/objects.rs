//! The preload library's reading of loaded objects. The bytes describe the symbols of an object,
//! whose tables are then laid out as a linker does it; each name must be found where a plain search
//! of the list finds it. The same names, and addresses, are looked up in the objects of this process.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/genesis-preload/src/elf.rs"]
mod elf;
#[allow(dead_code)]
#[path = "../../crates/genesis-preload/src/loader.rs"]
mod loader;

use std::ffi::{CString, c_void};

use elf::Object;
use libfuzzer_sys::fuzz_target;

const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_SONAME: u64 = 14;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Where the object has what, in bytes.
const HASHES: usize = 256;
const SYMBOLS: usize = 2048;
const STRINGS: usize = 4096;
const DYNAMIC: usize = 8192;
const OBJECT_BYTES: usize = 8448;
const MOST_SYMBOLS: usize = 40;
const LONGEST_NAME: usize = 12;

/// A symbol of the object.
#[derive(Clone, Debug)]
struct Symbol {
    name: CString,
    value: u64,
    is_defined: bool,
}

/// The bytes, read one by one; zeros at their end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Of few letters, so that some names are equal.
    fn name(&mut self) -> CString {
        let length = self.byte() as usize % LONGEST_NAME;
        let letters = (0..length).map(|_| match self.byte() {
            letter @ 128.. => letter,
            letter => b'a' + letter % 3,
        });
        CString::new(letters.collect::<Vec<u8>>()).unwrap()
    }

    fn symbol(&mut self) -> Symbol {
        let (kind, value) = (self.byte(), u64::from(self.byte()));
        Symbol { name: self.name(), value, is_defined: kind % 4 != 0 }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (buckets, unhashed) = (u32::from(input.byte() % 9), 1 + input.byte() as usize % 4);
    let (is_relocated, missing) = (input.byte() % 4 != 0, input.byte() % 8);
    let count = input.byte() as usize % MOST_SYMBOLS;
    let mut symbols: Vec<Symbol> = (0..unhashed + count).map(|_| input.symbol()).collect();
    // The first ones are known to nobody; the others are in the order of their buckets.
    symbols[unhashed..].sort_by_key(|symbol| hash(&symbol.name).checked_rem(buckets));
    let memory = lay_out(&symbols, unhashed, buckets, (is_relocated, missing));
    let base = memory.as_ptr() as usize;
    let header = libc::Elf64_Phdr {
        p_type: libc::PT_DYNAMIC,
        p_flags: 0,
        p_offset: 0,
        p_vaddr: DYNAMIC as u64,
        p_paddr: 0,
        p_filesz: 0,
        p_memsz: (OBJECT_BYTES - DYNAMIC) as u64,
        p_align: 8,
    };
    // SAFETY: all zeros are a valid value.
    let mut info: libc::dl_phdr_info = unsafe { std::mem::zeroed() };
    (info.dlpi_addr, info.dlpi_phdr, info.dlpi_phnum) = (base as u64, &header, 1);
    let object = Object::new(&info).unwrap();
    assert!(object.name().is_empty());
    let others = [input.name(), input.name()];
    let here = input.0.as_ptr() as usize;
    for name in symbols.iter().map(|symbol| &symbol.name).chain(&others) {
        let is_it = |symbol: &&Symbol| symbol.is_defined && symbol.name == *name;
        let is_readable = buckets > 0 && missing > 2;
        let expected = symbols[unhashed..].iter().find(is_it).filter(|_| is_readable);
        let expected = expected.map(|symbol| (base + symbol.value as usize) as *mut c_void);
        assert_eq!(object.symbol(name), expected, "{name:?} of {symbols:?}");
        if let Some((owner, place)) = Object::defining_after(here, name) {
            assert_eq!(owner.symbol(name), Some(place));
        }
    }
    let address = data.first_chunk().map_or(here, |bytes| usize::from_le_bytes(*bytes));
    assert!(Object::containing(objects_end as *const () as usize).is_some());
    let _ = Object::containing(address);
});

/// Somewhere in the code of this program.
fn objects_end() {}

fn hash(name: &CString) -> u32 {
    name.as_bytes()
        .iter()
        .fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// The object in memory: without the table number `missing`, and with addresses, or, as the kernel's
/// own object has them, offsets in its dynamic section.
fn lay_out(
    symbols: &[Symbol],
    unhashed: usize,
    buckets: u32,
    (is_relocated, missing): (bool, u8),
) -> Vec<u64> {
    let mut memory = vec![0u64; OBJECT_BYTES / 8];
    let base = memory.as_ptr() as u64;
    let mut put = |at: usize, bytes: &[u8]| {
        for (index, byte) in bytes.iter().enumerate() {
            let at = at + index;
            memory[at / 8] |= u64::from(*byte) << (at % 8 * 8);
        }
    };
    let mut name_at = 1;
    for (index, symbol) in symbols.iter().enumerate() {
        let at = SYMBOLS + index * size_of::<libc::Elf64_Sym>();
        put(at, &(name_at as u32).to_le_bytes());
        put(at + 6, &u16::from(symbol.is_defined).to_le_bytes());
        put(at + 8, &symbol.value.to_le_bytes());
        put(STRINGS + name_at, symbol.name.as_bytes());
        name_at += symbol.name.as_bytes().len() + 1;
    }
    // One word of the filter, which is not asked.
    let mut numbers = vec![buckets, unhashed as u32, 1, 0, 0, 0];
    let bucket = |symbol: &Symbol| hash(&symbol.name).checked_rem(buckets);
    let hashed = &symbols[unhashed..];
    let first = |number| hashed.iter().position(|symbol| bucket(symbol) == Some(number));
    numbers.extend((0..buckets).map(|one| first(one).map_or(0, |first| (unhashed + first) as u32)));
    for (index, symbol) in hashed.iter().enumerate() {
        let is_last = hashed.get(index + 1).is_none_or(|next| bucket(next) != bucket(symbol));
        numbers.push(hash(&symbol.name) & !1 | u32::from(is_last));
    }
    numbers.iter().enumerate().for_each(|(index, one)| put(HASHES + 4 * index, &one.to_le_bytes()));
    let tables = [(DT_STRTAB, STRINGS), (DT_SYMTAB, SYMBOLS), (DT_GNU_HASH, HASHES)];
    for (number, (tag, place)) in tables.into_iter().enumerate() {
        let tag = if usize::from(missing) == number { DT_SONAME } else { tag };
        let value = place as u64 + if is_relocated { base } else { 0 };
        put(DYNAMIC + 16 * number, &tag.to_le_bytes());
        put(DYNAMIC + 16 * number + 8, &value.to_le_bytes());
    }
    put(DYNAMIC + 16 * tables.len(), &DT_NULL.to_le_bytes());
    memory
}
