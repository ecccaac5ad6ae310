//! What a launch touches, as far as the kernel's name shows.
//!
//! What a kernel does to memory is not declared anywhere, and the sizes of its arguments are not
//! known here. But C++ names contain the types of the parameters, which shows three things: which
//! parameters are pointers, which are arrays of pointers (`std::array<char*, N>`, as in PyTorch's
//! element-wise kernels), and where each lies. So a launch touches, for each such pointer into
//! device memory, the line of [`LINE_BYTES`] it points into. Blocks of every allocator start at a
//! multiple of that, so a line never belongs to two of them, and a block reused too early is
//! noticed at its start.
//!
//! **Never a false alarm** is the rule, so that a test can require that there is none:
//! - A touch is a *read* unless it must write: `T*` without `const` is common for inputs. The
//!   first pointer of an array in an element-wise kernel is its output: a *write*. Copies and
//!   fills write too, and a read conflicts with a write.
//! - Parameters of other types are not searched for addresses: their size is unknown, and unused
//!   slots of a structure keep old addresses.
//! - Only the line is touched, because how far the kernel goes is not known. One exception:
//!   `vectorized_elementwise_kernel` is for dense operands, and its first parameter is the number
//!   of elements, of at least a byte each.
//!
//! Not found: two kernels that both use a block through plain pointers, or through structures.
//! Training programs also have copies, fills or element-wise kernels, which are found.

use std::ffi::{c_int, c_void};

use simgpu::{Access, AddressRange};

/// How much a pointer is assumed to touch, in bytes.
const LINE_BYTES: u64 = 512;
/// Kernels whose arrays of pointers start with the output.
const ELEMENTWISE: &str = "elementwise_kernel";
/// The one kernel whose first parameter is how far it goes.
const DENSE: &str = "vectorized_elementwise_kernel<";

/// A kernel's name and where its pointers are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Readable, without template arguments.
    pub(crate) name: String,
    pointers: Vec<Place>,
    is_dense: bool,
}

/// Where one pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    parameter: usize,
    /// Among the elements, where the parameter is an array.
    element: usize,
    access: Access,
}

/// A pointer of one launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    pub(crate) address: u64,
    pub(crate) access: Access,
    /// How far the kernel goes at least, in bytes; 0 if not known.
    least_bytes: u64,
}

impl Shape {
    /// The shape of the kernel with that mangled name. A name that is not C++ has no pointers.
    pub(crate) fn of(mangled: &str) -> Self {
        let demangled = cpp_demangle::Symbol::new(mangled).ok().map(|symbol| symbol.to_string());
        let Some((head, parameters)) = demangled.as_deref().and_then(split_signature) else {
            return Self { name: mangled.to_owned(), pointers: Vec::new(), is_dense: false };
        };
        let plain = head.split('<').next().unwrap_or(head);
        let name = plain.trim_start_matches("void ").to_owned();
        let is_elementwise = name.ends_with(ELEMENTWISE);
        let pointers = split_list(parameters)
            .into_iter()
            .enumerate()
            .flat_map(|(index, kind)| places(index, kind, is_elementwise))
            .collect();
        let is_dense = head.contains(DENSE) && parameters.starts_with("int,");
        Self { name, pointers, is_dense }
    }

    /// The pointers among the arguments of a launch.
    ///
    /// # Safety
    /// `arguments` is null or has a pointer to each argument of the kernel's name.
    pub(crate) unsafe fn pointers(
        &self,
        arguments: *const *const c_void,
    ) -> impl Iterator<Item = Pointer> {
        let places = if arguments.is_null() { &[][..] } else { &self.pointers[..] };
        let least_bytes = match (self.is_dense, places) {
            (false, _) | (_, []) => 0,
            // SAFETY: a dense kernel's first argument is an `int`.
            _ => u64::try_from(unsafe { arguments.read().cast::<c_int>().read_unaligned() })
                .unwrap_or(0),
        };
        places.iter().map(move |place| {
            // SAFETY: the parameter is there, and is a pointer or an array with that element.
            let address = unsafe {
                arguments
                    .add(place.parameter)
                    .read()
                    .cast::<u64>()
                    .add(place.element)
                    .read_unaligned()
            };
            Pointer { address, access: place.access, least_bytes }
        })
    }
}

impl Pointer {
    /// What the pointer touches of the range it points into, as address and bytes.
    pub(crate) fn extent(self, range: AddressRange) -> (u64, u64) {
        let start = (self.address & !(LINE_BYTES - 1)).max(range.base);
        let line_end = (self.address & !(LINE_BYTES - 1)) + LINE_BYTES;
        let end = line_end.max(self.address.saturating_add(self.least_bytes));
        (start, end.min(range.base + range.bytes) - start)
    }
}

/// The pointers in one parameter of type `kind`.
fn places(parameter: usize, kind: &str, is_elementwise: bool) -> Vec<Place> {
    if kind.ends_with('*') {
        return vec![Place { parameter, element: 0, access: Access::Read }];
    }
    let count = kind.strip_prefix("std::array<char*, ").and_then(|rest| {
        let rest = rest.trim_start_matches("(unsigned long)");
        rest.trim_end_matches([' ', '>', 'u', 'l']).parse::<usize>().ok()
    });
    let access = |element| {
        if element == 0 && is_elementwise { Access::Write } else { Access::Read }
    };
    let elements = 0..count.unwrap_or(0);
    elements.map(|element| Place { parameter, element, access: access(element) }).collect()
}

/// A function's text in two: before its parameters, and the parameters without parentheses.
fn split_signature(text: &str) -> Option<(&str, &str)> {
    let end = text.rfind(')')?;
    let mut depth = 0usize;
    for (index, letter) in text[..=end].char_indices().rev() {
        match letter {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[..index], &text[index + 1..end]));
        }
    }
    None
}

/// The parts of a list; lists inside a part stay whole.
fn split_list(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0i32);
    for (index, letter) in text.char_indices() {
        match letter {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILL: &str = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEE\
                        St5arrayIPcLm1EEEEviT0_T1_";

    #[test]
    fn names_tell_where_the_pointers_are() {
        let fill = Shape::of(FILL);
        assert_eq!(fill.name, "at::native::vectorized_elementwise_kernel");
        assert_eq!(fill.pointers, [Place { parameter: 2, element: 0, access: Access::Write }]);
        assert!(fill.is_dense);
        // void scale(float*, float const*, int)
        let scale = Shape::of("_Z5scalePfPKfi");
        let read = |parameter| Place { parameter, element: 0, access: Access::Read };
        assert_eq!((scale.name.as_str(), scale.pointers), ("scale", vec![read(0), read(1)]));
        assert_eq!(Shape::of("triton_kernel").pointers, []);
    }

    #[test]
    fn arguments_are_read_where_they_are() {
        let (count, functor, operands) = (4096i32, 1.0f32, [0x1000_0234u64]);
        let arguments: [*const c_void; 3] =
            [(&raw const count).cast(), (&raw const functor).cast(), (&raw const operands).cast()];
        let shape = Shape::of(FILL);
        // SAFETY: the arguments are those of `FILL`.
        let found: Vec<Pointer> = unsafe { shape.pointers(arguments.as_ptr()) }.collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].address, found[0].access), (0x1000_0234, Access::Write));
        let range = |bytes| AddressRange { device: 0, base: 0x1000_0000, bytes };
        assert_eq!(found[0].extent(range(1 << 20)), (0x1000_0200, 0x1034));
        assert_eq!(found[0].extent(range(0x300)), (0x1000_0200, 0x100));
    }

    #[test]
    fn lists_are_split_at_their_own_commas() {
        let (head, list) = split_signature("void f<g(int)>(int, h<a, b>, c (*)(d, e))").unwrap();
        assert_eq!(head, "void f<g(int)>");
        assert_eq!(split_list(list), ["int", "h<a, b>", "c (*)(d, e)"]);
    }
}
