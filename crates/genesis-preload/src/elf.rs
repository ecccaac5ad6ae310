//! The objects of the process, and their symbols, without the loader's own functions.
//!
//! This library replaces `dlsym`, so it cannot ask `dlsym` where the C library's is, and RTLD_NEXT
//! does not see what was loaded privately (`RTLD_LOCAL`). So the list of loaded objects is walked
//! (`dl_iterate_phdr`, in the order in which they were loaded), and a symbol is looked up in one
//! object's GNU hash table as the loader does it: a bucket by the hash, then the chain up to an odd
//! value. Versions of symbols are ignored, and indirect functions are not called.
//!
//! Everything read here is memory of the loader's that stays while its object is loaded. No
//! [`Object`] is kept longer than a call.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::ptr;

use crate::loader;

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// An entry of an object's dynamic section.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// An object that is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    base: usize,
    /// Its file; empty for the program itself.
    name: *const c_char,
    dynamic: *const Dynamic,
}

/// Calls `visit` with all objects in the order of loading, until it breaks with a value.
fn each<T>(visit: impl FnMut(&libc::dl_phdr_info) -> ControlFlow<T>) -> Option<T> {
    struct Walk<V, T> {
        visit: V,
        result: Option<T>,
    }
    unsafe extern "C" fn step<V: FnMut(&libc::dl_phdr_info) -> ControlFlow<T>, T>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        walk: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid entry and the pointer given to it below.
        let (info, walk) = unsafe { (&*info, &mut *walk.cast::<Walk<V, T>>()) };
        match (walk.visit)(info) {
            ControlFlow::Continue(()) => 0,
            ControlFlow::Break(value) => {
                walk.result = Some(value);
                1
            }
        }
    }
    fn pair<V: FnMut(&libc::dl_phdr_info) -> ControlFlow<T>, T>(
        walk: &mut Walk<V, T>,
    ) -> (unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int, *mut c_void)
    {
        (step::<V, T>, ptr::from_mut(walk).cast())
    }
    let _question = loader::ask()?;
    let mut walk = Walk { visit, result: None };
    let (step, data) = pair(&mut walk);
    // SAFETY: the walk lives until the call returns and is used by it alone.
    unsafe { libc::dl_iterate_phdr(Some(step), data) };
    walk.result
}

/// The program headers of an object.
fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: not null, so as many headers as the loader says.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
}

fn contains(info: &libc::dl_phdr_info, address: usize) -> bool {
    headers(info).iter().any(|header| {
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        header.p_type == libc::PT_LOAD && address.wrapping_sub(start) < header.p_memsz as usize
    })
}

impl Object {
    /// The object that the loader describes; `None` if it has no dynamic section.
    pub(crate) fn new(info: &libc::dl_phdr_info) -> Option<Self> {
        let base = info.dlpi_addr as usize;
        let dynamic = headers(info).iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let dynamic = base.wrapping_add(dynamic.p_vaddr as usize) as *const Dynamic;
        Some(Self { base, name: info.dlpi_name, dynamic })
    }

    /// The object in whose code or data `address` lies.
    pub(crate) fn containing(address: usize) -> Option<Self> {
        each(|info| {
            if contains(info, address) {
                ControlFlow::Break(Self::new(info))
            } else {
                ControlFlow::Continue(())
            }
        })?
    }

    /// The first object that defines `symbol` and was loaded after the one with `address`, or else
    /// before it, and the symbol's address. The object with `address` itself does not count.
    pub(crate) fn defining_after(address: usize, symbol: &CStr) -> Option<(Self, *mut c_void)> {
        let mut before = None;
        let mut is_after = false;
        let after = each(|info| {
            if contains(info, address) {
                is_after = true;
                return ControlFlow::Continue(());
            }
            if !is_after && before.is_some() {
                return ControlFlow::Continue(());
            }
            let found = Self::new(info)
                .and_then(|object| object.symbol(symbol).map(|place| (object, place)));
            match found {
                Some(found) if is_after => ControlFlow::Break(found),
                found => {
                    before = found.or(before);
                    ControlFlow::Continue(())
                }
            }
        });
        after.or(before)
    }

    /// The address of `symbol` if the object itself defines it.
    pub(crate) fn symbol(&self, symbol: &CStr) -> Option<*mut c_void> {
        let strings = self.table(DT_STRTAB)? as *const c_char;
        let symbols = self.table(DT_SYMTAB)? as *const libc::Elf64_Sym;
        let hashes = self.table(DT_GNU_HASH)? as *const u32;
        let wanted = gnu_hash(symbol);
        // SAFETY: the tables of a loaded object, laid out as the loader itself reads them: four
        // numbers, a filter of 8-byte words, buckets, and a chain for the symbols from `first` on
        // that ends with an odd value. Every index comes from the tables.
        unsafe {
            let [buckets, first, words] = [*hashes, *hashes.add(1), *hashes.add(2)];
            if buckets == 0 {
                return None;
            }
            let bucket = hashes.add(4 + 2 * words as usize);
            let chain = bucket.add(buckets as usize);
            let mut index = *bucket.add((wanted % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let hash = *chain.add((index - first) as usize);
                let entry = &*symbols.add(index as usize);
                let is_defined = entry.st_shndx != 0;
                if hash | 1 == wanted | 1
                    && is_defined
                    && CStr::from_ptr(strings.add(entry.st_name as usize)) == symbol
                {
                    return Some(self.base.wrapping_add(entry.st_value as usize) as *mut c_void);
                }
                if hash & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// Its file, as the loader knows it; empty for the program itself.
    pub(crate) fn name(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: not null, so the loader's text.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// Keeps the object loaded for ever.
    pub(crate) fn pin(&self) {
        let Some(_question) = loader::ask() else { return };
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the object is loaded under this name already; opening it only counts.
        unsafe { libc::dlopen(self.name().as_ptr(), flags) };
    }

    /// The value of `tag` in the dynamic section.
    fn table(&self, tag: i64) -> Option<usize> {
        let mut entry = self.dynamic;
        // SAFETY: a loaded object's dynamic section, which ends with a null entry.
        let value = unsafe {
            while (*entry).tag != tag {
                if (*entry).tag == DT_NULL {
                    return None;
                }
                entry = entry.add(1);
            }
            (*entry).value
        };
        // The loader has added the base, except in the kernel's object, where it may not write.
        Some(if value < self.base { value + self.base } else { value })
    }
}

fn gnu_hash(name: &CStr) -> u32 {
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
    name.to_bytes().iter().fold(5381, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_found_where_they_are_defined() {
        let here = symbols_are_found_where_they_are_defined as *const () as usize;
        let (object, place) = Object::defining_after(here, c"dlvsym").expect("a C library");
        assert!(object.name().to_bytes().windows(4).any(|part| part == b"libc" || part == b"libd"));
        assert_eq!(Object::containing(place as usize).expect("its object").name(), object.name());
        assert_eq!(object.symbol(c"no_such_symbol"), None);
        assert!(Object::defining_after(here, c"no_such_symbol").is_none());
    }
}
