//! The file of a trace: records gathered into pieces, plain or compressed.
//!
//! A piece is written whole, by one call where the system takes it whole. Compressed, each
//! piece is a Zstandard frame of its own with a checksum: frames follow one another in the
//! file, which readers take for one stream, so everything written can be read whatever
//! becomes of the process afterwards. Of a piece that the file took in part only, nothing is
//! left there.

use std::fs::File;
use std::io::{Result, Write};

use super::numbering::Record;

/// What a trace starts with.
const MAGIC: &[u8; 5] = b"GTR1\n";
/// A piece is written when it has grown to so many bytes: 65,536 records.
const PIECE_BYTES: usize = 1 << 20;
/// Zstandard's fastest: the writing thread must keep up with every other.
const ZSTD_LEVEL: i32 = 1;

/// Where a trace goes.
pub(super) struct Output {
    file: File,
    /// What the file has, in whole pieces.
    written_bytes: u64,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    piece: Vec<u8>,
    frame: Vec<u8>,
}

impl Output {
    /// Starts a trace, and writes its beginning.
    pub(super) fn new(file: File, is_compressed: bool) -> Result<Self> {
        let mut compressor = None;
        if is_compressed {
            let mut made = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
            made.include_checksum(true)?;
            compressor = Some(made);
        }
        let (piece, frame) = (MAGIC.to_vec(), Vec::new());
        let mut output = Self { file, written_bytes: 0, compressor, piece, frame };
        output.flush()?;
        Ok(output)
    }

    #[inline]
    pub(super) fn add(&mut self, record: Record) {
        self.piece.extend_from_slice(&record);
    }

    /// Whether a piece is waiting to be written that is large enough.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.piece.len() >= PIECE_BYTES
    }

    /// Writes what has been added.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let bytes = match &mut self.compressor {
            None => &self.piece,
            Some(compressor) => {
                self.frame.clear();
                self.frame.reserve(zstd::zstd_safe::compress_bound(self.piece.len()));
                compressor.compress_to_buffer(&self.piece, &mut self.frame)?;
                &self.frame
            }
        };
        if let Err(error) = self.file.write_all(bytes) {
            // A pipe keeps what it has taken.
            let _ = self.file.set_len(self.written_bytes);
            return Err(error);
        }
        self.written_bytes += bytes.len() as u64;
        self.piece.clear();
        Ok(())
    }
}
