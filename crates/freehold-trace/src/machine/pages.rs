//! What each page is, by `/proc/kpageflags`, kept block by block: which pages are free, and how
//! many hold what.
//!
//! ```text
//!  /proc/kpageflags   a word of 64 bits for each page, by PFN ──> Pages ──> `look --pages`
//!  NAME.pages.before.txt   a line for each block, or run of equal blocks ──┘ └──> a replay's blocks
//! ```
//!
//! Counts (`buddyinfo`) say how many free chunks there are and not where: a replay that has only
//! these draws blocks that fit them. These are the blocks themselves, at some two bits a page.
//!
//! A block here has 512 pages, whatever the machine's pageblocks have.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use freehold::PAGEBLOCK_FRAMES;

use super::super::error::StateError;
use super::super::source::{compression_of, decoder};
use super::super::zoneinfo::Zone;

/// Pages of a block, and words of its mask.
const BLOCK: u64 = PAGEBLOCK_FRAMES;
const WORDS: usize = BLOCK as usize / 64;
/// No page has a larger number: the kernel has 52 bits of address at most, and 12 are the page's.
const LAST: u64 = 1 << 40;

/// What holds a page that is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageKind {
    /// A process.
    Anon,
    /// A file's contents, or memory shared through one.
    File,
    /// A huge page, transparent or of hugetlbfs. Smaller folios are what they hold.
    Huge,
    /// The slab allocator.
    Slab,
    /// The kernel otherwise, page tables, or the list of a CPU: no flag says more.
    Unmovable,
}

impl PageKind {
    /// All, in the order of [`PageBlock::used`].
    pub const ALL: [Self; 5] = [Self::Anon, Self::File, Self::Huge, Self::Slab, Self::Unmovable];

    /// Its word in pictures.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Anon => "anonymous",
            Self::File => "file",
            Self::Huge => "huge",
            Self::Slab => "slab",
            Self::Unmovable => "unmovable",
        }
    }
}

/// 512 pages, or fewer where some do not exist or are not the allocator's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageBlock {
    /// Which pages are free, the first in the lowest bit of the first word.
    pub free: [u64; WORDS],
    /// Pages in use by kind, as [`PageKind::ALL`] has them.
    pub used: [u16; PageKind::ALL.len()],
}

impl PageBlock {
    /// Its free pages.
    #[must_use]
    pub fn free_pages(&self) -> u64 {
        self.free.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Its pages that are free or in use.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.free_pages() + self.used.iter().map(|n| u64::from(*n)).sum::<u64>()
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Equal blocks one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    /// The first one's first page.
    start: u64,
    count: u64,
    block: PageBlock,
}

/// What the pages of a machine are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pages {
    /// By rising page; blocks without any page are left out.
    runs: Vec<Run>,
}

/// What a page's flags say: free, in use for something, or neither.
enum Is {
    Absent,
    Free,
    Used(usize),
}

/// The bits of `/proc/kpageflags`, of the kernel's `kernel-page-flags.h`.
mod flag {
    pub(super) const LRU: u64 = 1 << 5;
    pub(super) const SLAB: u64 = 1 << 7;
    pub(super) const BUDDY: u64 = 1 << 10;
    pub(super) const MMAP: u64 = 1 << 11;
    pub(super) const ANON: u64 = 1 << 12;
    pub(super) const SWAPBACKED: u64 = 1 << 14;
    pub(super) const HEAD: u64 = 1 << 15;
    pub(super) const TAIL: u64 = 1 << 16;
    pub(super) const HUGE: u64 = 1 << 17;
    /// Of any folio of several pages that may be mapped as one.
    pub(super) const THP: u64 = 1 << 22;
    /// Does not exist, is broken, is offline; is not the allocator's.
    pub(super) const ABSENT: u64 = 1 << 19 | 1 << 20 | 1 << 23 | 1 << 32;
}

/// Whether a block is one transparent huge page.
fn is_huge(block: &[u64]) -> bool {
    block.len() as u64 == BLOCK
        && block.iter().all(|flags| flags & flag::THP != 0)
        && block[1..].iter().all(|flags| flags & flag::HEAD == 0)
}

/// `head`: what the head of a compound page is, whose tails older kernels say nothing of.
fn of_flags(flags: u64, is_huge: bool, head: &mut usize) -> Is {
    let has = |bits: u64| flags & bits != 0;
    if has(flag::ABSENT) {
        return Is::Absent;
    }
    if has(flag::BUDDY) {
        return Is::Free;
    }
    let kind = if has(flag::HUGE) || is_huge {
        PageKind::Huge
    } else if has(flag::SLAB) {
        PageKind::Slab
    } else if has(flag::ANON) {
        PageKind::Anon
    } else if has(flag::LRU | flag::SWAPBACKED | flag::MMAP | flag::THP) {
        PageKind::File
    } else {
        PageKind::Unmovable
    };
    if has(flag::TAIL) && kind == PageKind::Unmovable {
        return Is::Used(*head);
    }
    *head = kind as usize;
    Is::Used(*head)
}

impl Pages {
    /// Reads a file, plain, gzip or zstd: a kpageflags where it is called so, else what a recording
    /// has of one.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), and [`StateError::Io`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let fail = |source| StateError::Io { path: path.to_owned(), source };
        // Few reads: a page that is looked at later may be another's by then.
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(fail)?);
        let compression = compression_of(file.fill_buf().map_err(fail)?);
        let mut file = decoder(file, compression).map_err(fail)?;
        if path.file_name().unwrap_or_default().to_string_lossy().contains("kpageflags") {
            return Self::read(file).map_err(fail);
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(fail)?;
        let text = String::from_utf8_lossy(&text);
        StateError::in_text(&path.display().to_string(), &text, Self::parse)
    }

    /// Reads what `/proc/kpageflags` gives: words of either byte order, from page 0 on.
    ///
    /// # Errors
    ///
    /// What reading gives, and [`io::ErrorKind::UnexpectedEof`] within a word.
    pub fn read(mut from: impl Read) -> io::Result<Self> {
        let mut pages = Self::default();
        let (mut start, mut head, mut swapped) = (0, PageKind::Unmovable as usize, false);
        loop {
            let mut bytes = Vec::with_capacity(8 * BLOCK as usize);
            from.by_ref().take(8 * BLOCK).read_to_end(&mut bytes)?;
            if bytes.len() % 8 != 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut block = PageBlock::default();
            let words = bytes.chunks_exact(8).map(|word| word.try_into().unwrap_or_default());
            let mut words: Vec<u64> = words.map(u64::from_ne_bytes).collect();
            // No kernel has a flag so high; a hole's, and the commonest ones, come there swapped.
            swapped |= words.iter().any(|flags| flags >> 43 != 0);
            words.iter_mut().filter(|_| swapped).for_each(|flags| *flags = flags.swap_bytes());
            let huge = is_huge(&words);
            for (at, &flags) in words.iter().enumerate() {
                match of_flags(flags, huge, &mut head) {
                    Is::Absent => {}
                    Is::Free => block.free[at / 64] |= 1 << (at % 64),
                    Is::Used(kind) => block.used[kind] += 1,
                }
            }
            pages.push(Run { start, count: 1, block });
            if bytes.len() < 8 * BLOCK as usize {
                return Ok(pages);
            }
            start += BLOCK;
        }
    }

    fn push(&mut self, run: Run) {
        if run.block.is_empty() {
            return;
        }
        match self.runs.last_mut() {
            Some(last)
                if last.block == run.block && last.start + last.count * BLOCK == run.start =>
            {
                last.count += run.count;
            }
            _ => self.runs.push(run),
        }
    }

    /// As a file beside a trace has it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for Run { start, count, block } in &self.runs {
            let _ = write!(text, "{start:x} {count}");
            for used in block.used {
                let _ = write!(text, " {used}");
            }
            let _ = match block.free_pages() {
                0 => writeln!(text, " none"),
                BLOCK => writeln!(text, " all"),
                _ => {
                    let words = block.free.map(|word| format!("{word:016x}"));
                    writeln!(text, " {}", words.concat())
                }
            };
        }
        text
    }

    /// What such a file says.
    ///
    /// # Errors
    ///
    /// [`StateError::BadLine`]: a line that is none, blocks with more pages than they have room
    /// for, or not by rising page.
    pub fn parse(text: &str) -> Result<Self, StateError> {
        let (mut pages, mut next) = (Self::default(), 0);
        for (number, line) in (1u64..).zip(text.lines()) {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let run = run_of(line).filter(|run| run.start >= next).ok_or_else(|| {
                let why = "no block of pages, or not behind the one before";
                StateError::bad_line("pages", number, why)
            })?;
            next = run.start + run.count * BLOCK;
            pages.push(run);
        }
        match pages.runs.is_empty() {
            true => Err(StateError::bad_line("pages", 1, "no block of pages in it")),
            false => Ok(pages),
        }
    }

    /// The blocks that lie in a range of pages, in whole or in part, each with its first page;
    /// what of it is outside the range is neither free nor in use.
    pub fn blocks(&self, range: Range<u64>) -> impl Iterator<Item = (u64, PageBlock)> + '_ {
        let is_within = range.clone();
        let within = move |run: &&Run| {
            run.start < is_within.end && run.start + run.count * BLOCK > is_within.start
        };
        self.runs.iter().filter(within).flat_map(move |run| {
            let from = range.start.saturating_sub(run.start) / BLOCK;
            let to = run.count.min((range.end - run.start).div_ceil(BLOCK));
            let range = range.clone();
            (from..to).map(move |n| {
                let start = run.start + n * BLOCK;
                (start, run.block.cut(start, &range))
            })
        })
    }
}

impl Pages {
    /// The blocks of a zone, as [`blocks`](Self::blocks) has them.
    ///
    /// Of a hole, and of memory that the allocator never had, some kernels say as little as of a
    /// page that is their own. So where a zone has more pages than it manages, that many of the
    /// blocks of which nothing is said are left out, from the ends of the longest rows of them.
    #[must_use]
    pub fn of_zone(&self, zone: &Zone) -> Vec<(u64, PageBlock)> {
        let Some(start) = zone.start_pfn else { return Vec::new() };
        let mut found: Vec<(u64, PageBlock)> =
            self.blocks(start.get()..start.get().saturating_add(zone.spanned)).collect();
        let all: u64 = found.iter().map(|(_, block)| block.pages()).sum();
        let mut surplus = all.saturating_sub(zone.managed) / BLOCK;
        let mut rows: Vec<Range<usize>> = Vec::new();
        // No page of it has a flag.
        let is_untold = |of: &PageBlock| u64::from(of.used[PageKind::Unmovable as usize]) == BLOCK;
        for (at, _) in found.iter().enumerate().filter(|(_, (_, block))| is_untold(block)) {
            match rows.last_mut() {
                Some(row) if row.end == at => row.end += 1,
                _ => rows.push(at..at + 1),
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.len()));
        for row in rows {
            let less = (surplus as usize).min(row.len());
            surplus -= less as u64;
            found[row.end - less..row.end].iter_mut().for_each(|of| of.1 = PageBlock::default());
        }
        found.retain(|(_, block)| !block.is_empty());
        found
    }
}

impl PageBlock {
    /// What of it lies in a range. What is in use is taken to be as dense everywhere.
    fn cut(mut self, start: u64, range: &Range<u64>) -> Self {
        let (from, to) = (range.start.max(start) - start, range.end.min(start + BLOCK) - start);
        if to - from < BLOCK {
            for page in (0..from).chain(to..BLOCK) {
                self.free[page as usize / 64] &= !(1 << (page % 64));
            }
            self.used = self.used.map(|n| (u64::from(n) * (to - from) / BLOCK) as u16);
        }
        self
    }
}

/// The first line, which says what the others mean.
const HEAD: &str = "# blocks of 512 pages: the first page, how many blocks alike, pages in use: \
                    anonymous file huge slab unmovable, then which are free";

/// A line of the file; `None` where it is none.
fn run_of(line: &str) -> Option<Run> {
    let mut words = line.split_ascii_whitespace();
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    let count: u64 = words.next()?.parse().ok()?;
    let mut block = PageBlock::default();
    for used in &mut block.used {
        *used = words.next()?.parse().ok()?;
    }
    let free = words.next()?;
    match free {
        "none" => {}
        "all" => block.free = [u64::MAX; WORDS],
        hex if hex.len() == 16 * WORDS && hex.is_ascii() => {
            for (word, digits) in block.free.iter_mut().zip(hex.as_bytes().chunks(16)) {
                *word = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            }
        }
        _ => return None,
    }
    let end = count.checked_mul(BLOCK)?.checked_add(start)?;
    let is_one = words.next().is_none() && count > 0 && end <= LAST && start % BLOCK == 0;
    (is_one && block.pages() <= BLOCK).then_some(Run { start, count, block })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Flags of pages as the kernel gives them.
    fn words(flags: &[(u64, usize)]) -> Vec<u8> {
        let all = flags.iter().flat_map(|(flags, pages)| vec![*flags; *pages]);
        all.flat_map(u64::to_ne_bytes).collect()
    }

    /// Nothing; free; a process, a file and the kernel beside eight free pages; huge; free again.
    fn machine() -> Vec<u8> {
        words(&[
            (1 << 20, 512),
            (1 << 10, 1024),
            (1 << 12 | 1 << 5, 100),
            (1 << 5, 50),
            (0, 10),
            (1 << 10, 8),
            (1 << 15 | 1 << 7, 1),
            (1 << 16, 3),
            (1 << 32, 340),
            (1 << 17 | 1 << 15, 1),
            (1 << 17 | 1 << 16, 511),
            (1 << 10, 100),
        ])
    }

    #[test]
    fn what_pages_are() {
        let pages = Pages::read(&machine()[..]).unwrap();
        let blocks: Vec<(u64, PageBlock)> = pages.blocks(0..1 << 20).collect();
        let starts: Vec<u64> = blocks.iter().map(|(start, _)| *start).collect();
        assert_eq!(starts, [512, 1024, 1536, 2048, 2560], "what does not exist is left out");
        assert_eq!(blocks[0].1.free, [u64::MAX; WORDS]);
        let mixed = blocks[2].1;
        assert_eq!((mixed.used, mixed.free_pages()), ([100, 50, 0, 4, 10], 8));
        assert_eq!(mixed.free[2], 0xff << 32, "pages 160 to 167");
        assert_eq!(mixed.pages(), 172, "what is reserved is not the allocator's");
        assert_eq!(blocks[3].1.used, [0, 0, 512, 0, 0]);
        assert_eq!((blocks[4].1.free_pages(), blocks[4].1.pages()), (100, 100));
        // A folio of the page cache is not huge; a block that is one folio is.
        let (thp, head, tail) = (1 << 22 | 1 << 5, 1 << 15, 1 << 16);
        let folios = words(&[(thp | head, 1), (thp | tail, 511), (thp | head, 1), (thp | tail, 3)]);
        let read = Pages::read(&folios[..]).unwrap();
        let used: Vec<_> = read.blocks(0..1024).map(|(_, block)| block.used).collect();
        assert_eq!(used, [[0, 0, 512, 0, 0], [0, 4, 0, 0, 0]]);
        let swapped: Vec<u8> =
            machine().chunks_exact(8).flat_map(|word| word.iter().rev().copied()).collect();
        let (other, own) = (Pages::read(&swapped[..]), Pages::read(&machine()[..]));
        assert_eq!(other.unwrap(), own.unwrap(), "of a machine of the other byte order");
        let end = Pages::read(&machine()[..4099]).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        // Compressed words would be flags, too.
        let file = tempfile::Builder::new().prefix("kpageflags").tempfile().unwrap();
        fs::write(file.path(), zstd::encode_all(&machine()[..], 1).unwrap()).unwrap();
        assert_eq!(Pages::open(file.path()).unwrap(), pages);
    }

    #[test]
    fn a_file_says_what_was_read() {
        let pages = Pages::read(&machine()[..]).unwrap();
        let text = pages.text();
        assert_eq!(Pages::parse(&text).unwrap(), pages, "{text}");
        assert_eq!(text.lines().count(), 1 + 4, "equal blocks are one line:\n{text}");
        for end in 0..text.len() {
            let _ = Pages::parse(&text[..end]);
        }
        let refused = |line: &str| Pages::parse(line).is_err();
        for line in [
            "",
            "200 1 0 0 0 0 513 none",
            "200 1 0 0 0 0 1 all",
            "201 1 0 0 0 0 1 none",
            "200 0 0 0 0 0 1 none",
            "200 99999999999999999999 0 0 0 0 1 none",
            "200 9999999999999999 0 0 0 0 1 none",
            "200 1 0 0 0 0 1 ff",
            "200 2 0 0 0 0 1 none\n400 1 0 0 0 0 1 none",
        ] {
            assert!(refused(line), "{line}");
        }
    }

    #[test]
    fn what_the_allocator_never_had_is_left_out() {
        // Four blocks of the kernel, a free one, two of the kernel.
        let pages =
            Pages::parse("0 4 0 0 0 0 512 none\n800 1 0 0 0 0 0 all\na00 2 0 0 0 0 512 none\n");
        let pages = pages.unwrap();
        let of = |managed| {
            let (start_pfn, spanned) = (Some(freehold::Pfn::new(0)), 7 * 512);
            let zone = Zone { start_pfn, spanned, managed, ..Zone::default() };
            pages.of_zone(&zone).iter().map(|(start, _)| start / 512).collect::<Vec<_>>()
        };
        assert_eq!(of(7 * 512), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(of(5 * 512 + 9), [0, 1, 2, 4, 5, 6]);
        assert_eq!((of(2 * 512), of(0)), (vec![4, 5], vec![4]));
        assert!(pages.of_zone(&Zone::default()).is_empty());
    }

    #[test]
    fn a_zone_has_its_own_pages_alone() {
        let pages = Pages::read(&machine()[..]).unwrap();
        let free = |range| -> u64 { pages.blocks(range).map(|(_, of)| of.free_pages()).sum() };
        assert_eq!((free(0..1 << 20), free(600..1024), free(700..900)), (1132, 424, 200));
        assert_eq!(free(1 << 20..1 << 21), 0);
        // Half of a block's pages in use lie in half of it.
        let half: Vec<_> = pages.blocks(1536..1792).collect();
        assert_eq!((half[0].1.used, half[0].1.free_pages()), ([50, 25, 0, 2, 5], 8));
    }
}
