//! GFP flags: what a request said about itself, as the tracepoint `mm_page_alloc` reports it.
//!
//! A trace carries them as a number (Parquet, bpftrace) or as names (tracefs, perf), which are looked
//! up in the table of Linux 6.18. Numbers of another kernel are translated by its [`GfpEra`].
//!
//! ```text
//!  bit  0..3   zone: DMA, HIGHMEM, DMA32, MOVABLE
//!  bit  3..5   what kind of memory: MOVABLE (both), RECLAIMABLE
//!  bit  5      HIGH: may dip into the reserve
//!  bit  6..12  may start I/O, enter filesystems, zero; may reclaim directly, may wake kswapd
//!  bit 12..    hints for reclaim and bookkeeping
//! ```

use freehold::{AllocFlags, Migratetype, Order};

use super::kernel::GfpEra;

/// The page can be migrated; also admits ZONE_MOVABLE.
pub const GFP_MOVABLE: u32 = 1 << 3;
/// The page can be reclaimed through a shrinker.
pub const GFP_RECLAIMABLE: u32 = 1 << 4;
/// The caller is important: part of the min watermark may be used.
pub const GFP_HIGH: u32 = 1 << 5;
/// Zero the page.
pub const GFP_ZERO: u32 = 1 << 8;
/// The caller may reclaim, that is, wait.
pub const GFP_DIRECT_RECLAIM: u32 = 1 << 10;
/// Wake kswapd when free memory is low.
pub const GFP_KSWAPD_RECLAIM: u32 = 1 << 11;
/// Frees more than it takes: no watermark applies.
pub const GFP_MEMALLOC: u32 = 1 << 17;
/// A compound page.
pub const GFP_COMP: u32 = 1 << 18;
/// Never use the reserves.
pub const GFP_NOMEMALLOC: u32 = 1 << 19;
/// `GFP_KERNEL`: both kinds of reclaim, I/O and filesystems.
pub const GFP_KERNEL: u32 = 0xcc0;

/// Names and numbers of Linux 6.18, as the kernel prints them: combinations first, then single
/// bits.
pub const NAMES: &[(&str, u32)] = &[
    ("GFP_TRANSHUGE", 0x1c_24ca),
    ("GFP_TRANSHUGE_LIGHT", 0x1c_20ca),
    ("GFP_HIGHUSER_MOVABLE", 0x10_0cca),
    ("GFP_HIGHUSER", 0x10_0cc2),
    ("GFP_USER", 0x10_0cc0),
    ("GFP_KERNEL_ACCOUNT", 0x40_0cc0),
    ("GFP_KERNEL", GFP_KERNEL),
    ("GFP_NOFS", 0xc40),
    ("GFP_ATOMIC", 0x820),
    ("GFP_NOIO", 0xc00),
    ("GFP_NOWAIT", 0x2800),
    ("GFP_DMA", 0x1),
    ("GFP_DMA32", 0x4),
    ("__GFP_RECLAIM", 0xc00),
    ("__GFP_DMA", 1 << 0),
    ("__GFP_HIGHMEM", 1 << 1),
    ("__GFP_DMA32", 1 << 2),
    ("__GFP_MOVABLE", GFP_MOVABLE),
    ("__GFP_RECLAIMABLE", GFP_RECLAIMABLE),
    ("__GFP_HIGH", GFP_HIGH),
    ("__GFP_IO", 1 << 6),
    ("__GFP_FS", 1 << 7),
    ("__GFP_ZERO", GFP_ZERO),
    ("__GFP_DIRECT_RECLAIM", GFP_DIRECT_RECLAIM),
    ("__GFP_KSWAPD_RECLAIM", GFP_KSWAPD_RECLAIM),
    ("__GFP_WRITE", 1 << 12),
    ("__GFP_NOWARN", 1 << 13),
    ("__GFP_RETRY_MAYFAIL", 1 << 14),
    ("__GFP_NOFAIL", 1 << 15),
    ("__GFP_NORETRY", 1 << 16),
    ("__GFP_MEMALLOC", GFP_MEMALLOC),
    ("__GFP_COMP", GFP_COMP),
    ("__GFP_NOMEMALLOC", GFP_NOMEMALLOC),
    ("__GFP_HARDWALL", 1 << 20),
    ("__GFP_THISNODE", 1 << 21),
    ("__GFP_ACCOUNT", 1 << 22),
    ("__GFP_ZEROTAGS", 1 << 23),
    ("__GFP_NO_OBJ_EXT", 1 << 24),
    ("none", 0),
];

/// Names that other kernels print and 6.18 has no bit for (or not in the configuration whose
/// numbers are used here), with the nearest 6.18 meaning.
const ELSEWHERE: &[(&str, u32)] = &[
    ("GFP_TEMPORARY", GFP_KERNEL | GFP_RECLAIMABLE),
    ("GFP_NOWAIT_MOVABLE", 0x2808),
    ("__GFP_WAIT", GFP_DIRECT_RECLAIM | GFP_KSWAPD_RECLAIM),
    ("__GFP_REPEAT", 1 << 14),
];

/// Of `__GFP_` and these names free lists never see a difference.
const NO_DIFFERENCE: &str = "ATOMIC COLD NOTRACK NOTRACK_FALSE_POSITIVE OTHER_NODE NO_KSWAPD \
    NOLOCKDEP NOACCOUNT KMEMCG SKIP_ZERO SKIP_KASAN SKIP_KASAN_POISON SKIP_KASAN_UNPOISON CMA \
    BITS_SHIFT";

/// The names of the bits of one numbering, lowest first. Bits above them depend on the
/// configuration and make no difference to free lists.
///
/// The numbers are facts of the kernel's `include/linux/gfp.h` (`gfp_types.h` since 6.0) in Linux
/// 3.10, 4.4, 4.10, 4.18 and 5.1, where they changed; checked against the numbers and names that
/// kernels print together in their messages (`gfp_mask=0x6200ca(GFP_HIGHUSER_MOVABLE)`).
fn names_of(era: GfpEra) -> impl Iterator<Item = &'static str> {
    let names = match era {
        GfpEra::Wait => {
            "DMA HIGHMEM DMA32 MOVABLE WAIT HIGH IO FS COLD NOWARN REPEAT NOFAIL NORETRY MEMALLOC \
             COMP ZERO NOMEMALLOC HARDWALL THISNODE RECLAIMABLE NOACCOUNT NOTRACK NO_KSWAPD \
             OTHER_NODE WRITE"
        }
        GfpEra::OtherNode => {
            "DMA HIGHMEM DMA32 MOVABLE RECLAIMABLE HIGH IO FS COLD NOWARN REPEAT NOFAIL NORETRY \
             MEMALLOC COMP ZERO NOMEMALLOC HARDWALL THISNODE ATOMIC ACCOUNT NOTRACK \
             DIRECT_RECLAIM OTHER_NODE WRITE KSWAPD_RECLAIM"
        }
        GfpEra::Cold => {
            "DMA HIGHMEM DMA32 MOVABLE RECLAIMABLE HIGH IO FS COLD NOWARN RETRY_MAYFAIL NOFAIL \
             NORETRY MEMALLOC COMP ZERO NOMEMALLOC HARDWALL THISNODE ATOMIC ACCOUNT NOTRACK \
             DIRECT_RECLAIM WRITE KSWAPD_RECLAIM"
        }
        GfpEra::Write => {
            "DMA HIGHMEM DMA32 MOVABLE RECLAIMABLE HIGH IO FS WRITE NOWARN RETRY_MAYFAIL NOFAIL \
             NORETRY MEMALLOC COMP ZERO NOMEMALLOC HARDWALL THISNODE ATOMIC ACCOUNT \
             DIRECT_RECLAIM KSWAPD_RECLAIM"
        }
        GfpEra::Zero => {
            "DMA HIGHMEM DMA32 MOVABLE RECLAIMABLE HIGH IO FS ZERO ATOMIC DIRECT_RECLAIM \
             KSWAPD_RECLAIM WRITE NOWARN RETRY_MAYFAIL NOFAIL NORETRY MEMALLOC COMP NOMEMALLOC \
             HARDWALL THISNODE ACCOUNT"
        }
    };
    names.split_ascii_whitespace()
}

/// The translation of numbers of another era to those of 6.18.
pub(super) fn bits_of(era: GfpEra) -> Translation {
    let mut bits = [0; 32];
    bits.iter_mut().zip(names_of(era)).for_each(|(to, name)| *to = named(name).unwrap_or(0));
    if era == GfpEra::Wait {
        bits[4] = GFP_DIRECT_RECLAIM;
    }
    // Before 4.4 kswapd was woken unless a request said otherwise.
    let unless = (era == GfpEra::Wait).then_some((1 << 22, GFP_KSWAPD_RECLAIM));
    Translation { bits, unless }
}

/// Parses flags as text: names and numbers (`0x...` or decimal) joined by `|`. `number` says what a
/// number of the recording kernel is here, `None` refuses it. The error is the first part that is
/// neither a name nor a number that is taken.
pub(super) fn parse<'t>(
    text: &'t str,
    number: &dyn Fn(u32) -> Option<u32>,
) -> Result<u32, &'t str> {
    // Real traces use a dozen combinations; the table is short enough to search.
    text.split('|').try_fold(0, |bits, part| {
        let name = part.trim();
        let value = match number_in(name) {
            Some(value) => value.and_then(number),
            None => one(name),
        };
        Ok(bits | value.ok_or(part)?)
    })
}

/// Bits of another kernel that have no name there, where none here has them either: such a bit
/// stays what it is, and one that would be read as another flag is left out.
pub(super) fn without_name(bits: u32) -> u32 {
    bits & !NAMES.iter().fold(0, |all, (_, bits)| all | bits)
}

/// Whether a part of flags is written as a number.
pub(super) fn is_number(part: &str) -> bool {
    number_in(part.trim()).is_some()
}

/// The number that a part is, if it is one; `Some(None)` where it does not fit.
fn number_in(part: &str) -> Option<Option<u32>> {
    if let Some(hex) = part.strip_prefix("0x") {
        return Some(u32::from_str_radix(hex, 16).ok());
    }
    part.starts_with(|c: char| c.is_ascii_digit()).then(|| part.parse().ok())
}

/// A name's bits. Kernels before 4.6 leave the underscores of single bits away.
fn one(part: &str) -> Option<u32> {
    let single = || part.strip_prefix("__").unwrap_or(part).strip_prefix("GFP_").and_then(named);
    known(part).or_else(single)
}

/// The bits of `__GFP_` and that name.
fn named(name: &str) -> Option<u32> {
    let none = || NO_DIFFERENCE.split_ascii_whitespace().any(|of| of == name).then_some(0);
    known(&format!("__GFP_{name}")).or_else(none)
}

fn known(wanted: &str) -> Option<u32> {
    let found = NAMES.iter().chain(ELSEWHERE).find(|(name, _)| *name == wanted);
    found.map(|&(_, bits)| bits)
}

/// Prints flags the way the kernel does: the largest combinations first, left-over bits in
/// hexadecimal.
pub(super) fn format(gfp: u32) -> String {
    if gfp == 0 {
        return "none".to_owned();
    }
    let mut left = gfp;
    let mut parts: Vec<String> = Vec::new();
    for &(name, bits) in NAMES {
        if bits != 0 && left & bits == bits {
            parts.push(name.to_owned());
            left &= !bits;
        }
    }
    if left != 0 {
        parts.push(format!("{left:#x}"));
    }
    parts.join("|")
}

/// What kind of memory a request is for: `gfp_migratetype()` of the kernel.
///
/// Both bits together are a bug in the caller that the kernel only warns of; it is served as
/// Movable here.
#[inline]
#[must_use]
pub const fn migratetype(gfp: u32) -> Migratetype {
    if gfp & GFP_MOVABLE != 0 {
        Migratetype::Movable
    } else if gfp & GFP_RECLAIMABLE != 0 {
        Migratetype::Reclaimable
    } else {
        Migratetype::Unmovable
    }
}

/// How far a request may go: what `gfp_to_alloc_flags()` and `__gfp_pfmemalloc_flags()` of Linux
/// 6.18 derive from the flags alone.
///
/// Three inputs of the kernel are not in a trace: whether the task is a real-time one or being
/// killed (more reserve), whether the zone has a DMA32 zone below it (`NO_FRAGMENT`, which the
/// caller adds for zone Normal), and whether the call came through `alloc_pages_nolock`
/// (`NO_LOCK`).
#[must_use]
pub fn alloc_flags(gfp: u32, order: Order) -> AllocFlags {
    let mut flags = AllocFlags::empty();
    let high = gfp & GFP_HIGH != 0;
    let reserves = gfp & GFP_NOMEMALLOC == 0;
    flags.set(AllocFlags::MIN_RESERVE, high);
    if gfp & GFP_DIRECT_RECLAIM == 0 && reserves {
        flags |= AllocFlags::NON_BLOCK;
        flags.set(AllocFlags::HIGH_ATOMIC, high && order > Order::ZERO);
    }
    flags.set(AllocFlags::CMA, matches!(migratetype(gfp), Migratetype::Movable));
    flags.set(AllocFlags::NO_WATERMARKS, gfp & GFP_MEMALLOC != 0 && reserves);
    flags
}

/// Translates numbers of another kernel to those of 6.18, by the names of its single bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Translation {
    /// What each bit of the other kernel is here.
    bits: [u32; 32],
    /// A bit of the other kernel, and what is meant here unless it is set.
    unless: Option<(u32, u32)>,
}

impl Translation {
    /// Whether every single bit that the table names is where it is here, so that there is nothing
    /// to translate.
    pub(super) fn is_needless(table: &[(String, u64)]) -> bool {
        let bits = table.iter().filter(|(_, bits)| bits.is_power_of_two());
        let mut own = bits.filter_map(|(name, bits)| Some((name.strip_prefix("__GFP_")?, *bits)));
        own.all(|(own, bits)| named(own).map(u64::from) == Some(bits))
    }

    /// What a number of the other kernel is here.
    pub(super) fn apply(&self, gfp: u32) -> u32 {
        let given = self.unless.filter(|(bit, _)| gfp & bit == 0).map_or(0, |(_, meant)| meant);
        (0..32).filter(|bit| gfp >> bit & 1 != 0).fold(given, |all, bit| all | self.bits[bit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<u32, &str> {
        super::parse(text, &|bits| Some(bits))
    }

    #[test]
    fn names_numbers_and_mixtures() {
        assert_eq!(
            parse("GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP"),
            Ok(1_051_850 | 256 | 262_144)
        );
        assert_eq!(parse("0xcc0"), Ok(GFP_KERNEL));
        assert_eq!(parse("3264"), Ok(GFP_KERNEL));
        assert_eq!(parse("GFP_KERNEL|0x80000000"), Ok(GFP_KERNEL | 1 << 31));
        assert_eq!(parse("none"), Ok(0));
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("GFP_KERNEL|__GFP_FROBNICATE"), Err("__GFP_FROBNICATE"));
        assert_eq!(parse("GFP_KERNEL|"), Err(""));
        assert_eq!(parse("0x1ffffffff"), Err("0x1ffffffff"));
        assert_eq!(parse(""), Err(""));
    }

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for bit in 0..32 {
            for gfp in
                [1 << bit, GFP_KERNEL | 1 << bit, 0x14_0cca ^ (1 << bit), u32::MAX ^ (1 << bit)]
            {
                assert_eq!(parse(&format(gfp)), Ok(gfp), "{gfp:#x}");
            }
        }
        assert_eq!(format(0x14_0dca), "GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP");
    }

    #[test]
    fn migratetypes_follow_the_flags() {
        assert_eq!(migratetype(one("GFP_HIGHUSER_MOVABLE").unwrap()), Migratetype::Movable);
        assert_eq!(migratetype(GFP_KERNEL | GFP_RECLAIMABLE), Migratetype::Reclaimable);
        assert_eq!(migratetype(GFP_KERNEL), Migratetype::Unmovable);
    }

    #[test]
    fn alloc_flags_restate_the_kernel_rules() {
        let flags =
            |text: &str, order| alloc_flags(parse(text).unwrap(), Order::new(order).unwrap());
        assert_eq!(flags("GFP_KERNEL", 3), AllocFlags::empty());
        assert_eq!(flags("GFP_HIGHUSER_MOVABLE", 0), AllocFlags::CMA);
        assert_eq!(flags("GFP_NOWAIT", 3), AllocFlags::NON_BLOCK);
        assert_eq!(flags("GFP_ATOMIC", 0), AllocFlags::NON_BLOCK | AllocFlags::MIN_RESERVE);
        assert_eq!(
            flags("GFP_ATOMIC", 1),
            AllocFlags::NON_BLOCK | AllocFlags::MIN_RESERVE | AllocFlags::HIGH_ATOMIC
        );
        // __GFP_NOMEMALLOC takes the atomic reserves away, but not the share that __GFP_HIGH alone
        // gives.
        assert_eq!(flags("GFP_ATOMIC|__GFP_NOMEMALLOC", 1), AllocFlags::MIN_RESERVE);
        assert_eq!(flags("GFP_KERNEL|__GFP_MEMALLOC", 0), AllocFlags::NO_WATERMARKS);
        assert_eq!(flags("GFP_KERNEL|__GFP_MEMALLOC|__GFP_NOMEMALLOC", 0), AllocFlags::empty());
    }

    #[test]
    fn numbers_of_every_era_are_what_their_kernels_print_beside_them() {
        // A page fault's request and one of a network driver, with the numbers that kernels of each
        // era print beside these names.
        let fault = one("GFP_HIGHUSER_MOVABLE").unwrap();
        for (era, number) in [
            (GfpEra::Wait, 0x200da),
            (GfpEra::OtherNode, 0x24200ca),
            (GfpEra::Cold, 0x14200ca),
            (GfpEra::Write, 0x6200ca),
            (GfpEra::Zero, 0x100cca),
        ] {
            assert_eq!(bits_of(era).apply(number), fault, "{era:?}");
        }
        assert_eq!(bits_of(GfpEra::Write).apply(0x6280ca), fault | GFP_ZERO);
        for (era, atomic) in [
            (GfpEra::Wait, 0x20),
            (GfpEra::OtherNode, 0x208_0020),
            (GfpEra::Cold, 0x108_0020),
            (GfpEra::Write, 0x48_0020),
            (GfpEra::Zero, 0xa20),
        ] {
            assert_eq!(bits_of(era).apply(atomic), one("GFP_ATOMIC").unwrap(), "{era:?}");
        }
        assert_eq!(migratetype(bits_of(GfpEra::Wait).apply(0x8_00d0)), Migratetype::Reclaimable);
        // A huge page before 4.4, which wakes nobody.
        assert_eq!(bits_of(GfpEra::Wait).apply(0x40_0010), GFP_DIRECT_RECLAIM);
    }

    #[test]
    fn old_kernels_print_single_bits_without_underscores() {
        assert_eq!(
            parse("GFP_HIGHUSER_MOVABLE|GFP_ZERO"),
            parse("GFP_HIGHUSER_MOVABLE|__GFP_ZERO")
        );
        assert_eq!(parse("GFP_REPEAT|GFP_NOWARN"), parse("__GFP_RETRY_MAYFAIL|__GFP_NOWARN"));
        assert_eq!(parse("GFP_FROBNICATE"), Err("GFP_FROBNICATE"));
        let refuse = |_: u32| None;
        assert_eq!(super::parse("GFP_KERNEL|0x20", &refuse), Err("0x20"));
        assert!(is_number(" 0xcc0") && is_number("3264") && !is_number("none"));
    }

    #[test]
    fn a_table_of_names_needs_no_translation_where_all_bits_are_where_they_are_here() {
        let table = |names: &[(&str, u64)]| -> Vec<(String, u64)> {
            names.iter().map(|&(name, bits)| (name.to_owned(), bits)).collect()
        };
        assert!(!Translation::is_needless(&table(&[("__GFP_COMP", 1 << 20)])));
        let same: Vec<_> = NAMES.iter().map(|&(name, bits)| (name, u64::from(bits))).collect();
        assert!(Translation::is_needless(&table(&same)));
        // One that is not known here is no reason to read its bit as another.
        assert!(!Translation::is_needless(&table(&[("__GFP_FROBNICATE", 1 << 17)])));
    }
}
