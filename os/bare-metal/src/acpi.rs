//! Which CPUs there are: from the firmware's ACPI tables.
//!
//! ```text
//!   RSDP "RSD PTR " -> RSDT (4-byte pointers) or XSDT (8-byte ones) -> table "APIC": the MADT
//!   MADT: entries of (type, length, ...): type 0 local APIC (id, flags), type 9 the same with 32-bit ids
//! ```
//!
//! The tables come from outside: every length is checked before it is believed, and checksums are,
//! too. Memory is reached through a function, so that all of this runs anywhere.

/// A CPU that can be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu {
    /// The number that interrupts are sent to.
    pub apic_id: u32,
}

/// Why no CPUs were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AcpiError {
    /// There is no RSDP at that address, or it is damaged.
    Rsdp {
        /// The address.
        at: u64,
    },
    /// A table is damaged: too short, too long, or with a wrong checksum.
    Table {
        /// Its address.
        at: u64,
    },
    /// There is no MADT.
    NoMadt,
}

impl core::fmt::Display for AcpiError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Rsdp { at } => write!(f, "no ACPI root pointer at {at:#x}"),
            Self::Table { at } => write!(f, "the ACPI table at {at:#x} is damaged"),
            Self::NoMadt => f.write_str("no ACPI table tells which CPUs there are"),
        }
    }
}

impl core::error::Error for AcpiError {}

/// The largest table that is believed.
const MAX_TABLE: u64 = 1 << 20;
const HEADER: usize = 36;

/// Physical memory: `len` bytes at an address, or `None` where there are none to be read.
pub trait Memory {
    /// See the trait.
    fn bytes(&self, at: u64, len: u64) -> Option<&[u8]>;
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn sums_to_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

fn table<M: Memory + ?Sized>(memory: &M, at: u64) -> Result<&[u8], AcpiError> {
    let damaged = AcpiError::Table { at };
    let header = memory.bytes(at, HEADER as u64).ok_or(damaged)?;
    let len = u64::from(u32_at(header, 4).ok_or(damaged)?);
    if !(HEADER as u64..=MAX_TABLE).contains(&len) {
        return Err(damaged);
    }
    let all = memory.bytes(at, len).ok_or(damaged)?;
    if sums_to_zero(all) { Ok(all) } else { Err(damaged) }
}

/// Calls `found` with each CPU that is enabled, in the order of the MADT.
///
/// # Errors
///
/// See [`AcpiError`].
pub fn for_each_cpu<M: Memory + ?Sized>(
    memory: &M,
    rsdp: u64,
    mut found: impl FnMut(Cpu),
) -> Result<(), AcpiError> {
    let bad = AcpiError::Rsdp { at: rsdp };
    let root = memory.bytes(rsdp, 20).ok_or(bad)?;
    if &root[..8] != b"RSD PTR " || !sums_to_zero(root) {
        return Err(bad);
    }
    // Revision 2 and later: 8-byte pointers.
    let extended = if root[15] >= 2 { memory.bytes(rsdp, 36) } else { None };
    let xsdt = extended.and_then(|root| u64_at(root, 24)).filter(|at| *at != 0);
    let rsdt = u32_at(root, 16).map(u64::from).ok_or(bad)?;
    let (list, width) = match xsdt {
        Some(at) => (table(memory, at)?, 8),
        None => (table(memory, rsdt)?, 4),
    };
    for pointer in list[HEADER..].chunks_exact(width) {
        let at = if width == 8 { u64_at(pointer, 0) } else { u32_at(pointer, 0).map(u64::from) };
        let Some(at) = at else { continue };
        let is_madt = memory.bytes(at, 4).is_some_and(|signature| signature == b"APIC");
        if is_madt {
            return madt(table(memory, at)?, at, &mut found);
        }
    }
    Err(AcpiError::NoMadt)
}

fn madt(table: &[u8], at: u64, found: &mut impl FnMut(Cpu)) -> Result<(), AcpiError> {
    let damaged = AcpiError::Table { at };
    let mut rest = table.get(44..).ok_or(damaged)?;
    while let [kind, len, ..] = *rest {
        let len = usize::from(len);
        let entry = rest.get(..len).filter(|_| len >= 2).ok_or(damaged)?;
        let (id, flags) = match kind {
            0 => (entry.get(3).map(|id| u32::from(*id)), u32_at(entry, 4)),
            9 => (u32_at(entry, 4), u32_at(entry, 8)),
            _ => (None, None),
        };
        if let (Some(apic_id), Some(flags)) = (id, flags) {
            // Enabled; those that could only be plugged in later are not.
            if flags & 1 != 0 {
                found(Cpu { apic_id });
            }
        }
        rest = &rest[len..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn bytes(&self, at: u64, len: u64) -> Option<&[u8]> {
            let end = at.checked_add(len)?;
            self.0.get(usize::try_from(at).ok()?..usize::try_from(end).ok()?)
        }
    }

    fn seal(bytes: &mut [u8], checksum_at: usize) {
        let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        bytes[checksum_at] = bytes[checksum_at].wrapping_sub(sum);
    }

    fn table_of(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut bytes = std::vec![0; HEADER];
        bytes[..4].copy_from_slice(signature);
        bytes.extend_from_slice(body);
        let len = bytes.len() as u32;
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
        seal(&mut bytes, 9);
        bytes
    }

    /// RSDP at 0, root table at 64, another table at 192, MADT at 256.
    fn machine(wide: bool, entries: &[u8]) -> Bytes {
        let mut memory = std::vec![0u8; 4096];
        let mut put = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
        let mut rsdp = std::vec![0u8; 20];
        rsdp[..8].copy_from_slice(b"RSD PTR ");
        rsdp[15] = if wide { 2 } else { 0 };
        rsdp[16..20].copy_from_slice(&64u32.to_le_bytes());
        seal(&mut rsdp, 8);
        put(0, &rsdp);
        put(24, &64u64.to_le_bytes());
        let pointers: Vec<u8> = if wide {
            [192u64, 256].iter().flat_map(|at| at.to_le_bytes()).collect()
        } else {
            [192u32, 256].iter().flat_map(|at| at.to_le_bytes()).collect()
        };
        put(64, &table_of(if wide { b"XSDT" } else { b"RSDT" }, &pointers));
        put(192, &table_of(b"HPET", &[0; 4]));
        let mut body = std::vec![0u8; 8];
        body.extend_from_slice(entries);
        put(256, &table_of(b"APIC", &body));
        Bytes(memory)
    }

    fn cpus(memory: &Bytes) -> Result<Vec<u32>, AcpiError> {
        let mut found = Vec::new();
        for_each_cpu(memory, 0, |cpu| found.push(cpu.apic_id))?;
        Ok(found)
    }

    // Local APICs 0 and 2, one that is disabled, an I/O APIC between them, an x2APIC with id 300.
    const ENTRIES: [u8; 52] = [
        0, 8, 0, 0, 1, 0, 0, 0, //
        0, 8, 1, 7, 0, 0, 0, 0, //
        1, 12, 0, 0, 0, 0, 192, 254, 0, 0, 0, 0, //
        0, 8, 2, 2, 1, 0, 0, 0, //
        9, 16, 0, 0, 44, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn enabled_cpus_are_found_through_either_root_table() {
        for wide in [false, true] {
            assert_eq!(cpus(&machine(wide, &ENTRIES)), Ok(std::vec![0, 2, 300]));
        }
    }

    #[test]
    fn damage_is_noticed() {
        let mut memory = machine(false, &ENTRIES);
        memory.0[300] ^= 1;
        assert_eq!(cpus(&memory), Err(AcpiError::Table { at: 256 }));
        let mut memory = machine(false, &ENTRIES);
        memory.0[3] = b'?';
        assert_eq!(cpus(&memory), Err(AcpiError::Rsdp { at: 0 }));
        let mut memory = machine(false, &ENTRIES);
        memory.0[256] = b'?';
        assert_eq!(cpus(&memory), Err(AcpiError::NoMadt));
        // An entry of length 0 would be looked at for ever.
        assert_eq!(cpus(&machine(false, &[0, 0, 0, 0])), Err(AcpiError::Table { at: 256 }));
        assert_eq!(cpus(&machine(false, &[0, 8, 0])), Err(AcpiError::Table { at: 256 }));
    }

    proptest! {
        /// Whatever the tables hold, nothing is read outside them and every walk ends.
        #[test]
        fn no_table_makes_it_panic(
            entries in prop::collection::vec(any::<u8>(), 0..80),
            wide in any::<bool>(),
            hits in prop::collection::vec((0usize..400, any::<u8>()), 0..4),
        ) {
            let mut memory = machine(wide, &entries);
            let _ = cpus(&memory);
            for (at, value) in hits {
                memory.0[at] = value;
            }
            let _ = cpus(&memory);
        }
    }
}
