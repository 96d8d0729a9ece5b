//! Pages with checksums: the CRC-32 of the Parquet format, which its header has a place for and the
//! `parquet` crate verifies but does not write.
//!
//! ```text
//!  page header (Thrift, compact)   type 15 ..  size 15 ..  compressed size 15 ..  | crc 15 .. |  the rest
//!                                  field 1     field 2     field 3                | field 4   |  field 5, 7 or 8
//! ```
//!
//! The crate writes a page as ever, into memory; the checksum is put into its header behind the
//! third field. A field is written with its distance from the one before, so that of the next
//! shrinks by one.

use std::io::Write;

use bytes::Bytes;
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};

/// A field of 32 bits, one behind the field before.
const NEXT_I32: u8 = 0x15;

/// The pages of one column chunk, in memory.
pub(super) struct ChecksummedPages<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> ChecksummedPages<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }
}

impl PageWriter for ChecksummedPages<'_> {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec> {
        let checksum = crc32fast::hash(page.data());
        let data = page.data().len();
        let mut written = TrackedWrite::new(Vec::new());
        let mut spec = SerializedPageWriter::new(&mut written).write_page(page)?;
        written.flush()?;
        let plain = written.into_inner()?;
        let header = &plain[..plain.len() - data];
        // A field that the checksum can stand before: two further than the sizes or more.
        let at = behind_sizes(header)
            .filter(|&at| header.get(at).is_some_and(|byte| byte >> 4 >= 2))
            .ok_or_else(|| ParquetError::General("a page header of another form".into()))?;

        let start = self.out.len();
        self.out.extend_from_slice(&header[..at]);
        self.out.push(NEXT_I32);
        push_i32(self.out, checksum as i32);
        self.out.push(header[at] - 0x10);
        self.out.extend_from_slice(&plain[at + 1..]);
        let length = self.out.len() - start;
        let longer = length - plain.len();
        spec.offset = start as u64;
        spec.bytes_written = length as u64;
        spec.uncompressed_size += longer;
        spec.compressed_size += longer;
        Ok(spec)
    }

    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Where the field behind the first three (type and sizes) begins.
fn behind_sizes(header: &[u8]) -> Option<usize> {
    let mut at = 0;
    for _ in 0..3 {
        if *header.get(at)? != NEXT_I32 {
            return None;
        }
        at += 1 + header[at + 1..].iter().position(|byte| byte & 0x80 == 0)? + 1;
    }
    Some(at)
}

/// Whether the page whose header begins `bytes` has a checksum.
pub(super) fn has_checksum(bytes: &Bytes) -> bool {
    behind_sizes(bytes).is_some_and(|at| bytes.get(at) == Some(&NEXT_I32))
}

/// A number as Thrift's compact form has it: zigzag, seven bits a byte.
fn push_i32(out: &mut Vec<u8>, value: i32) {
    let mut left = (value << 1 ^ value >> 31) as u32;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_zigzag_varints() {
        for (value, bytes) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (64, &[0x80, 1]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut out = Vec::new();
            push_i32(&mut out, value);
            assert_eq!(out, bytes, "{value}");
        }
    }
}
