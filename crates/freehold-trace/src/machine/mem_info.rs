//! The `Mem-Info` report of a kernel log: what is printed when memory runs out, when an allocation
//! fails, and by sysrq-m.
//!
//! ```text
//!  Mem-Info:
//!  Node 0 DMA32 per-cpu:                                   <- to 4.0; what CPUs hold, in pages
//!  CPU    0: hi:  186, btch:  31 usd: 170
//!  Node 0 DMA32 free:44000kB min:24436kB ... managed:1908640kB free_pcp:1200kB free_cma:2000kB
//!  Node 0 DMA32: 1000*4kB (UMEC) 1000*8kB (UME) ... 0*4096kB = 44000kB
//! ```
//!
//! Words are read, not lines: logs put a date before each line, break lines up, or lose the break.
//! The smallest chunk is a page, so the report says how large that is. Without nodes a kernel
//! prints the zone's name alone; `managed` came with 3.8, `free_pcp` with 4.1.

use freehold::CpuId;

use super::super::buddyinfo::{ZoneFree, frames};
use super::super::error::StateError;
use super::super::zoneinfo::{Pageset, Zone};

/// The names that zones have.
const ZONES: [&str; 6] = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"];

/// One report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct MemInfo {
    /// Bytes of a page.
    pub(super) page_size: u64,
    pub(super) zones: Vec<Zone>,
    pub(super) chunks: Vec<ZoneFree>,
    /// For each of `chunks` the types that have chunks of an order, as the kernel's letters.
    pub(super) letters: Vec<Vec<String>>,
    /// What is wrong with chunks that were taken as they stand.
    pub(super) doubts: Vec<String>,
}

/// The last whole report of a text, or else the last whose chunks are in doubt, and how many there
/// are; `None` where there is none at all. A mail as archives keep it is decoded first: it breaks
/// lines within words, and writes `=3D` for `=`.
///
/// # Errors
///
/// [`StateError::Contradiction`] where every report lacks something, in words about the last.
pub(super) fn find(text: &str) -> Result<Option<(MemInfo, usize)>, StateError> {
    let mut reports: Vec<Report> = vec![Report::default()];
    let is_mail = text.contains("=3D");
    let decoded = |text: &str| text.replace("\r\n", "\n").replace("=\n", "").replace("=3D", "=");
    let mail = is_mail.then(|| decoded(text));
    let text = mail.as_deref().unwrap_or(text);
    for word in text.split_whitespace() {
        // ARM's and other old kernels' own has a small letter.
        if word.ends_with("Mem-Info:") || word.ends_with("Mem-info:") {
            reports.push(Report::default());
        }
        reports.last_mut().into_iter().for_each(|report| report.word(word));
    }
    reports.retain(|report| !report.zones.is_empty() || !report.lists.is_empty());
    let count = reports.len();
    let (mut last, mut doubtful) = (None, None);
    for report in reports.into_iter().rev() {
        match report.finish() {
            Ok(whole) if whole.doubts.is_empty() => return Ok(Some((whole, count))),
            Ok(other) => doubtful = doubtful.or(Some(other)),
            Err(why) => last = last.or(Some(why)),
        }
    }
    match (doubtful, last) {
        (Some(doubtful), _) => Ok(Some((doubtful, count))),
        (None, None) => Ok(None),
        (None, Some(what)) => Err(StateError::Contradiction { what: format!("Mem-Info: {what}") }),
    }
}

/// A report whose words are being read.
#[derive(Default)]
struct Report {
    zones: Vec<InKib>,
    lists: Vec<List>,
    per_cpu: Vec<(Place, Pageset)>,
    node: u32,
    /// The zone's name that came last, for what follows it.
    name: Option<&'static str>,
    reading: Reading,
    /// The name of a count whose value is the next word.
    count: Option<Count>,
}

type Place = (u32, &'static str);

#[derive(Clone, Copy)]
enum Count {
    Node,
    Cpu,
    High,
    Batch,
    Used,
    Total,
}

#[derive(Default, PartialEq, Eq)]
enum Reading {
    #[default]
    Nothing,
    Amounts,
    Chunks,
    PerCpu(Place),
}

/// A zone with its amounts in KiB.
struct InKib {
    place: Place,
    amounts: Vec<(&'static str, u64)>,
}

/// The free chunks of a zone: of so many KiB each so many, and their types.
struct List {
    place: Place,
    chunks: Vec<(u64, u64, String)>,
    total: Option<u64>,
}

/// The amounts that are of use.
const AMOUNTS: [&str; 9] =
    ["free", "boost", "min", "low", "high", "present", "managed", "free_pcp", "free_cma"];

impl Report {
    fn word(&mut self, word: &str) {
        match self.count.take() {
            // The log was cut behind the sign: no later number is this sum.
            Some(Count::Total) if word == "Node" || word.contains('*') => {}
            Some(count) => return self.count(count, word),
            None => {}
        }
        match word {
            "Node" => self.count = Some(Count::Node),
            "CPU" if matches!(self.reading, Reading::PerCpu(_)) => self.count = Some(Count::Cpu),
            "hi:" => self.count = Some(Count::High),
            "btch:" => self.count = Some(Count::Batch),
            "usd:" => self.count = Some(Count::Used),
            "=" if self.reading == Reading::Chunks => self.count = Some(Count::Total),
            // A zone without memory, before 2.6.28.
            "empty" => self.reading = Reading::Nothing,
            "per-cpu:" => {
                let place = self.name.map(|name| (self.node, name));
                self.per_cpu.retain(|(of, _)| Some(*of) != place);
                self.reading = place.map_or(Reading::Nothing, Reading::PerCpu);
            }
            _ => self.amount(word),
        }
    }

    fn count(&mut self, count: Count, word: &str) {
        let number = || word.trim_end_matches([':', ',']).parse::<u64>().ok();
        if let (Count::Total, Some(list)) = (count, self.lists.last_mut()) {
            list.total = word.strip_suffix("kB").and_then(|n| n.parse().ok());
        } else if let Some(number) = number() {
            self.number(count, number);
            return;
        }
        match self.lists.last() {
            Some(list) if matches!(count, Count::Total) && list.total.is_some() => {
                self.reading = Reading::Nothing;
            }
            // What stands before each line of a log.
            _ => self.count = Some(count),
        }
    }

    fn number(&mut self, count: Count, number: u64) {
        if let Count::Node = count {
            // Linux has 1,024 at most.
            self.node = u32::try_from(number).ok().filter(|n| *n < 1024).unwrap_or(self.node);
            return;
        }
        let Reading::PerCpu(place) = self.reading else { return };
        if let Count::Cpu = count {
            let cpu = CpuId::new(u16::try_from(number).unwrap_or(u16::MAX));
            self.per_cpu.push((place, Pageset { cpu, ..Pageset::default() }));
        } else if let Some((_, set)) = self.per_cpu.last_mut() {
            match count {
                // Before 2.6.25 a CPU has a list of hot pages and one of cold ones.
                Count::High => set.high = set.high.saturating_add(number),
                Count::Batch => set.batch = set.batch.max(number),
                Count::Used => set.count = set.count.saturating_add(number),
                Count::Node | Count::Cpu | Count::Total => {}
            }
        }
    }

    /// A zone's name, an amount of it, or chunks of a size.
    fn amount(&mut self, word: &str) {
        if let Some(name) = ZONES.into_iter().find(|name| *name == word) {
            self.name = Some(name);
            return;
        }
        let list = word.strip_suffix(':').and_then(|of| ZONES.into_iter().find(|n| *n == of));
        if let Some(name) = list {
            let place = (self.node, name);
            self.lists.push(List { place, chunks: Vec::new(), total: None });
            self.reading = Reading::Chunks;
            return;
        }
        if self.reading == Reading::Chunks {
            self.chunk(word);
            return;
        }
        let Some((key, value)) = word.split_once(':') else { return };
        let Some(key) = AMOUNTS.into_iter().find(|name| *name == key) else {
            if word.starts_with("lowmem_reserve") {
                self.reading = Reading::Nothing;
            }
            return;
        };
        let Some(kib) = value.strip_suffix("kB").and_then(|value| value.parse().ok()) else {
            return;
        };
        if let ("free", Some(name)) = (key, self.name.take()) {
            let place = (self.node, name);
            self.zones.retain(|zone| zone.place != place);
            self.zones.push(InKib { place, amounts: Vec::new() });
            self.reading = Reading::Amounts;
        }
        if let (Reading::Amounts, Some(zone)) = (&self.reading, self.zones.last_mut()) {
            zone.amounts.push((key, kib));
        }
    }

    /// `1000*4kB`, or the letters of its types behind it.
    fn chunk(&mut self, word: &str) {
        let Some(list) = self.lists.last_mut() else { return };
        let letters = word.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        if let (Some(letters), Some(last)) = (letters, list.chunks.last_mut()) {
            last.2 = letters.to_owned();
        }
        let Some((n, size)) = word.split_once('*') else { return };
        let kib = size.strip_suffix("kB").and_then(|size| size.parse().ok());
        if let (Ok(n), Some(kib)) = (n.parse(), kib) {
            list.chunks.push((kib, n, String::new()));
            let (place, is_first) = (list.place, list.chunks.len() == 1);
            // Of a second report, whose first line is lost.
            let mut behind = self.lists.len();
            self.lists.retain(|list| {
                behind -= 1;
                behind == 0 || !is_first || list.place != place
            });
        }
    }

    fn finish(mut self) -> Result<MemInfo, String> {
        // Other lines begin as a list does: `DMA: preallocated 256 KiB pool`.
        self.lists.retain(|list| !list.chunks.is_empty());
        let kib = self.lists.iter().find_map(|list| list.chunks.first()).map(|chunk| chunk.0);
        let kib = kib.filter(|kib| kib.is_power_of_two() && *kib <= 1024);
        let kib = kib.ok_or("no free chunks by order in it: is the log cut?")?;
        let mut found = MemInfo { page_size: kib << 10, ..MemInfo::default() };
        for list in &self.lists {
            list.put_into(kib, &mut found)?;
        }
        let orders = found.chunks.first().map_or(0, |of| of.chunks.len());
        if found.chunks.iter().any(|of| of.chunks.len() != orders) {
            return Err("zones have different orders: are words missing?".to_owned());
        }
        for of in &self.zones {
            found.zones.push(of.zone(kib)?);
        }
        for ((node, name), set) in self.per_cpu {
            let is = |zone: &&mut Zone| zone.node == node && zone.name == name;
            found.zones.iter_mut().find(is).into_iter().for_each(|zone| zone.pagesets.push(set));
        }
        match found.zones.is_empty() {
            true => Err("no zone with its free memory in it: is the log cut?".to_owned()),
            false => Ok(found),
        }
    }
}

impl List {
    fn put_into(&self, kib: u64, found: &mut MemInfo) -> Result<(), String> {
        let (node, zone) = self.place;
        let whole = self
            .chunks
            .iter()
            .enumerate()
            .all(|(order, chunk)| order < 19 && chunk.0 == kib << order);
        let chunks: Vec<u64> = self.chunks.iter().map(|chunk| chunk.1).collect();
        let sum = frames(&chunks).checked_mul(kib);
        let of = format!("the chunks of zone {zone} of node {node}");
        let (Some(sum), Some(total), true) = (sum, self.total, whole) else {
            return Err(format!("{of} are not whole: is the log cut, or are two in one?"));
        };
        if sum != total {
            found.doubts.push(format!("{of} are {sum} KiB, and it says {total}"));
        }
        found.chunks.push(ZoneFree { node, zone: zone.to_owned(), chunks });
        found.letters.push(self.chunks.iter().map(|chunk| chunk.2.clone()).collect());
        Ok(())
    }
}

impl InKib {
    fn zone(&self, kib: u64) -> Result<Zone, String> {
        let (node, name) = self.place;
        let of = |key: &str| {
            self.amounts.iter().find(|(of, _)| *of == key).map(|(_, amount)| amount / kib)
        };
        let present = of("present");
        let free = of("free").unwrap_or(0);
        // Kernels before 3.8 count less as present than may be free.
        let managed = of("managed").or(present.map(|present| present.max(free)));
        let managed = managed.ok_or_else(|| format!("zone {name} does not say its size"))?;
        // Each CPU adds what it has freed and taken now and then.
        if free - free / 8 > managed {
            return Err(format!("zone {name} has more free than it manages"));
        }
        Ok(Zone {
            node,
            name: name.to_owned(),
            free: free.min(managed),
            boost: of("boost").unwrap_or(0),
            min: of("min").unwrap_or(0),
            low: of("low").unwrap_or(0),
            high: of("high").unwrap_or(0),
            present: present.unwrap_or(managed),
            managed,
            held: of("free_pcp"),
            free_cma: of("free_cma"),
            ..Zone::default()
        }
        .without_boost())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 6.12 prints it, with a date before each line.
    const NEW: &str = "\
Jan 02 03:04:05 host kernel: Mem-Info:
Jan 02 03:04:05 host kernel: active_anon:13000 inactive_anon:0 free:999 free_pcp:8
Jan 02 03:04:05 host kernel: Node 0 active_anon:54744kB inactive_anon:0kB
Jan 02 03:04:05 host kernel: Node 0 DMA free:48kB boost:0kB min:40kB low:48kB high:56kB present:160kB managed:120kB free_pcp:8kB local_pcp:8kB free_cma:0kB
Jan 02 03:04:05 host kernel: lowmem_reserve[]: 0 1559 1559
Jan 02 03:04:05 host kernel: Node 1 Normal free:64kB boost:4kB min:8kB low:12kB high:16kB present:4000kB managed:4000kB free_pcp:0kB
Jan 02 03:04:05 host kernel: Node 0 DMA: 2*4kB (UM) 1*8kB (E) 2*16kB (UME) = 48kB
Jan 02 03:04:05 host kernel: Node 1 Normal: 0*4kB 0*8kB 4*16kB (M) = 64kB
Jan 02 03:04:05 host kernel: Node 0 hugepages_total=0 hugepages_free=0 hugepages_size=2048kB
";

    fn one(text: &str) -> MemInfo {
        find(text).unwrap().unwrap().0
    }

    #[test]
    fn zones_marks_chunks_and_letters() {
        let found = one(NEW);
        assert_eq!(found.page_size, 4096);
        let zones: Vec<_> = found.zones.iter().map(|z| (z.node, z.name.as_str(), z.free)).collect();
        assert_eq!(zones, [(0, "DMA", 12), (1, "Normal", 16)]);
        let zone = &found.zones[0];
        assert_eq!((zone.min, zone.low, zone.high, zone.managed), (10, 12, 14, 30));
        assert_eq!((zone.held, zone.free_cma, found.zones[1].boost), (Some(2), Some(0), 1));
        assert_eq!((found.zones[1].min, found.zones[1].high), (1, 3), "of 2 and 4, 1 is boost");
        assert_eq!(found.chunks[0].chunks, [2, 1, 2]);
        assert_eq!(found.letters, [["UM", "E", "UME"], ["", "", "M"]]);
    }

    /// Each break of a line may be lost or new, and prefixes are of any kind.
    #[test]
    fn however_lines_are_broken_and_marked() {
        let bare = NEW.replace("Jan 02 03:04:05 host kernel: ", "");
        let expected = one(&bare);
        for prefix in ["[   12.345678] ", "<4>[   12.345678][    T1] ", "> ", "kernel: : [2.5] "] {
            let lines = bare.lines().map(|line| format!("{prefix}{line}\n")).collect::<String>();
            assert_eq!(one(&lines), expected, "{prefix}");
            let broken = bare.replace(' ', &format!(" \n{prefix}"));
            assert_eq!(one(&broken), expected, "broken up, {prefix}");
        }
        assert_eq!(one(&bare.replace('\n', " ")), expected);
    }

    #[test]
    fn kernels_before_3_8_without_nodes() {
        let found = one("Mem-Info:\nNormal per-cpu:\nCPU    0: hi:   90, btch:  15 usd:  37\n\
             CPU    1: hi:   90, btch:  15 usd:   5\nactive_anon:1 free:3\n\
             Normal free:164kB min:8kB low:12kB high:16kB present:160kB mlocked:0kB\n\
             lowmem_reserve[]: 0 0\nNormal: 1*4kB 4*8kB 8*16kB = 164kB\n");
        let zone = &found.zones[0];
        assert_eq!((zone.node, zone.managed, zone.present, zone.held), (0, 41, 40, None));
        let sets: Vec<_> = zone.pagesets.iter().map(|s| (s.cpu.get(), s.high, s.count)).collect();
        assert_eq!(sets, [(0, 90, 37), (1, 90, 5)]);
    }

    #[test]
    fn kernels_before_2_6_28_have_two_lists_a_cpu_and_tell_empty_zones() {
        let found = one("Mem-info:\nDMA per-cpu:\nCPU    2: Hot: hi:  186, btch:  31 usd:  60   \
             Cold: hi:   62, btch:  15 usd:   5\nHighMem per-cpu: empty\n\
             DMA free:164kB min:8kB low:12kB high:16kB present:160kB pages_scanned:0\n\
             HighMem free:0kB min:8kB low:8kB high:8kB present:0kB\n\
             DMA: 1*4kB 4*8kB 8*16kB = 164kB\nHighMem: empty\nSwap cache: add 0, delete 0\n");
        let set = &found.zones[0].pagesets[0];
        assert_eq!((set.cpu.get(), set.high, set.batch, set.count), (2, 248, 31, 65));
        assert_eq!((found.zones.len(), found.chunks.len()), (2, 1));
    }

    #[test]
    fn a_line_that_begins_as_a_list_is_none() {
        let more = "[    2.1] DMA: preallocated 256 KiB GFP_KERNEL pool for atomic allocations\n";
        assert_eq!(one(&format!("{NEW}{more}")), one(NEW));
        assert_eq!(one(&format!("{more}{NEW}{more}")), one(NEW));
    }

    /// Mailing lists' archives have mails so.
    #[test]
    fn a_mail_as_it_was_sent() {
        let encoded = NEW.replace('=', "=3D");
        let broken = |every: usize| {
            let mut text = String::new();
            for (n, letter) in encoded.chars().enumerate() {
                let within = text.ends_with("=3") || text.ends_with('=');
                text.push_str(if n % every == 0 && !within { "=\r\n" } else { "" });
                text.push(letter);
            }
            text
        };
        for every in [7, 20, 76] {
            assert_eq!(one(&broken(every)), one(NEW), "{every}");
        }
    }

    #[test]
    fn the_last_whole_one_of_several() {
        let (found, count) = find(&NEW.repeat(2)).unwrap().unwrap();
        assert_eq!((found.zones.len(), count), (2, 2));
        // Where the line between them is lost, and where a sum is some frames behind another.
        let lost = NEW.replace("Mem-Info:", "").replace("managed:120kB", "managed:44kB");
        let (found, count) = find(&format!("{NEW}{lost}")).unwrap().unwrap();
        assert_eq!((found.zones.len(), found.chunks.len(), count), (2, 2, 1));
        assert_eq!(found.zones.iter().map(|z| (z.free, z.managed)).min(), Some((11, 11)));
        let cut = NEW.len() - 200;
        let (found, count) = find(&format!("{NEW}{}", &NEW[..cut])).unwrap().unwrap();
        assert_eq!((found, count), (one(NEW), 2));
        assert!(find(&NEW[..cut]).unwrap_err().to_string().contains("cut"));
        let other = NEW.replace("= 48kB", "= 52kB");
        let (found, _) = find(&other).unwrap().unwrap();
        assert_eq!(found.doubts.len(), 1, "it is shown with a warning: {:?}", found.doubts);
        assert!(found.doubts[0].contains("zone DMA of node 0 are 48 KiB, and it says 52"));
        assert_eq!(find(&format!("{NEW}{other}")).unwrap(), Some((one(NEW), 2)), "the whole one");
        // A sum that is lost, of one report alone, and of one whose end and the next one's line are.
        let cut = NEW.replacen("= 48kB", "=", 1);
        assert!(find(&cut).unwrap_err().to_string().contains("not whole"), "{cut}");
        let next = NEW.replace("Mem-Info:", "");
        let (found, _) =
            find(&format!("{}\n{next}", cut.split("=\n").next().unwrap())).unwrap().unwrap();
        assert_eq!((found.chunks.len(), found.doubts.len()), (2, 0));
        let _ = find("Mem-info:\nDMA per-cpu:\nCPU 0: hi: 18446744073709551615 hi: 1 usd: 1\n");
        assert_eq!(find("nothing of the kind\n").unwrap(), None);
        for end in 0..NEW.len() {
            let _ = find(&NEW[..end]);
        }
    }
}
