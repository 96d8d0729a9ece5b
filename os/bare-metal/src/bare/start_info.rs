//! What QEMU hands over: the PVH start info, read once, before its memory is given away.
//!
//! ```text
//!   hvm_start_info   0 magic, 4 version, 8 flags, 12 modules, 16 module list, 24 command line, 32 RSDP,
//!                    40 memory map (version 1), 48 its entries
//!   an entry         0 address, 8 size, 16 type (1: RAM), 20 reserved
//! ```

use freehold_kernel::acpi;
use freehold_kernel::memory_map::Piece;

use crate::layout::{BOOT_MAPPED, direct};

const MAGIC: u32 = 0x336e_c578;
const COMMAND_LINE: usize = 512;
const PIECES: usize = 128;

/// Copies of it all.
pub(crate) struct StartInfo {
    /// Where ACPI's root pointer is.
    pub(crate) rsdp: u64,
    command_line: [u8; COMMAND_LINE],
    command_line_len: usize,
    pieces: [Piece; PIECES],
    pieces_len: usize,
}

/// Physical memory as the boot code maps it.
pub(crate) struct Physical;

impl acpi::Memory for Physical {
    fn bytes(&self, at: u64, len: u64) -> Option<&[u8]> {
        let end = at.checked_add(len)?;
        if at == 0 || end > BOOT_MAPPED {
            return None;
        }
        // SAFETY: the boot code's page tables show the first 4 GiB in the direct map, and so do
        // those that follow. What is read here are the firmware's tables, which nobody writes after
        // the firmware is through.
        Some(unsafe {
            core::slice::from_raw_parts(direct(at) as *const u8, usize::try_from(len).ok()?)
        })
    }
}

fn read(at: u64, len: u64) -> &'static [u8] {
    static PHYSICAL: Physical = Physical;
    acpi::Memory::bytes(&PHYSICAL, at, len)
        .unwrap_or_else(|| panic!("start info points to {at:#x}"))
}

fn u32_at(at: u64) -> u32 {
    read(at, 4).try_into().map_or(0, u32::from_le_bytes)
}

fn u64_at(at: u64) -> u64 {
    read(at, 8).try_into().map_or(0, u64::from_le_bytes)
}

impl StartInfo {
    /// Reads it.
    ///
    /// # Panics
    ///
    /// Where it is not there, or older than memory maps in it (QEMU 4.0).
    pub(crate) fn read(at: u64) -> Self {
        assert_eq!(u32_at(at), MAGIC, "no PVH start info at {at:#x}");
        assert!(u32_at(at + 4) >= 1, "the PVH start info has no memory map");
        let mut info = Self {
            rsdp: u64_at(at + 32),
            command_line: [0; COMMAND_LINE],
            command_line_len: 0,
            pieces: [Piece { start: 0, len: 0, ram: false }; PIECES],
            pieces_len: 0,
        };
        let line = u64_at(at + 24);
        if line != 0 {
            while info.command_line_len < COMMAND_LINE {
                let byte = read(line + info.command_line_len as u64, 1)[0];
                if byte == 0 {
                    break;
                }
                info.command_line[info.command_line_len] = byte;
                info.command_line_len += 1;
            }
            assert!(
                info.command_line_len < COMMAND_LINE,
                "the command line is longer than {COMMAND_LINE} bytes"
            );
        }
        let (map, entries) = (u64_at(at + 40), u32_at(at + 48) as usize);
        assert!(entries <= PIECES, "a memory map of {entries} entries; raise PIECES");
        for i in 0..entries {
            let entry = map + i as u64 * 24;
            info.pieces[i] = Piece {
                start: u64_at(entry),
                len: u64_at(entry + 8),
                ram: u32_at(entry + 16) == 1,
            };
        }
        info.pieces_len = entries;
        info
    }

    /// The words after the kernel's name.
    pub(crate) fn command_line(&self) -> &str {
        core::str::from_utf8(&self.command_line[..self.command_line_len]).unwrap_or_default()
    }

    /// The memory map, as it stands there.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces[..self.pieces_len]
    }
}
