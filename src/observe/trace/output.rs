//! The file of a trace: records collected into pieces, plain or compressed.
//!
//! A piece is written at once. If compressed, each piece is a Zstandard frame with a checksum;
//! readers take consecutive frames for one stream, so everything written can be read even if the
//! process is killed afterwards. If a write fails half way, the file is truncated to whole pieces.

use std::fs::File;
use std::io::{Result, Write};

use super::numbering::Record;

/// The beginning of a trace.
const MAGIC: &[u8; 5] = b"GTR1\n";
/// The size at which a piece is written: 65,536 records.
const PIECE_BYTES: usize = 1 << 20;
/// Zstandard's fastest level: the writing thread must keep up with all others.
const ZSTD_LEVEL: i32 = 1;

/// The writer of a trace.
pub(super) struct Output {
    file: File,
    /// The bytes of the whole pieces in the file.
    written_bytes: u64,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    piece: Vec<u8>,
    frame: Vec<u8>,
}

impl Output {
    /// Starts a trace and writes its beginning.
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

    /// Returns true if the piece is large enough to be written.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.piece.len() >= PIECE_BYTES
    }

    /// Writes the records added.
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
            // A pipe cannot be truncated.
            let _ = self.file.set_len(self.written_bytes);
            return Err(error);
        }
        self.written_bytes += bytes.len() as u64;
        self.piece.clear();
        Ok(())
    }
}
