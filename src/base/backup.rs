//! Where the contents of paused memory are kept.

/// What becomes of the contents of memory while it is paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub enum Backup {
    /// They are dropped.
    #[default]
    None,
    /// They are kept in page-locked host memory: the fastest.
    Pinned,
    /// They are kept in host memory that is page-locked only while it is copied.
    Pageable,
    /// They are kept in a file that has no name.
    Disk,
}

impl Backup {
    /// Every kind, by its number.
    pub const ALL: &[Self] = &[Self::None, Self::Pinned, Self::Pageable, Self::Disk];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pinned => "pinned",
            Self::Pageable => "pageable",
            Self::Disk => "disk",
        }
    }
}
