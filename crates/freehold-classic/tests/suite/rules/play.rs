//! The calls of a table.
//!
//! ```text
//!   machine 16 [zone] [small] [cpus=2] [marks=MIN/LOW/HIGH|kernel] [cma=0+512]
//!           [slice=256]                  16 pageblocks; `zone`: CPUs keep nothing; `small`: no
//!                                        huge pages; 0+512 in place of 16: that range
//!   tune 0,1 BATCH LOW HIGH [high=N] [free_count=N] [factor=N] [gather] [row]
//!   take ORDER TYPE [xN] [cpu=N] [flags=A+B] [into=a|+a] [downto=FREE] [empty] [busy]
//!   all ORDER TYPE [...]                 until there is no more
//!   bulk N TYPE [keeps=a] [...]          for N places, of which one may be filled already
//!   put a [cpu=N] | folios a [by=N] | array a | range 0+512 [kept=N]
//!   drip a N [into=b]                    N chunks of `a` are freed, a frame is taken, and so on
//!   split a ORDER | get a | keep a into=+b
//!   contig 0+512 [into=a] [moving|freeing] [stays=a] | isolate 0+512 | unisolate 0+512
//!   pin N                                takes the first frame of each of the first N blocks
//!   forget                               the end of a set-up
//!   drain | tick CPU | far CPU | faraway CPU | off | reclaim | normal | elsewhere
//!   count                                counts begin here
//!   is WHAT=VALUE ... | note NAME WHAT   see `ask.rs`; a value for later checks
//!   refuse ERROR CALL                    the call must fail so: Busy@512
//!   whole                                all is free and in one piece
//!   repeat N CALL, ...                   the calls between commas
//! ```

use std::collections::BTreeMap;

use freehold::{AllocFlags, CpuId, FrameRange, Migratetype, Pfn};
use freehold_classic::{
    Classic, Config, Design, InUse, Put, Request, Stats, Tuning, Watermarks, ZoneConfig,
};

use super::lists::{BASE, Chunk, Lists, at, number, order};

/// What a call comes to; an error as a table writes it.
type Outcome = Result<(), String>;

pub(super) struct Player {
    design: String,
    machine: Option<Classic>,
    frames: u64,
    pub(super) lists: Lists,
    /// What was the case earlier, by a name.
    pub(super) notes: BTreeMap<String, String>,
    /// Checks that failed.
    pub(super) wrong: Vec<String>,
}

/// The words of a call behind its first: those with a value, and the others in order.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn plain(&self, n: usize) -> &'a str {
        self.0.get(n).unwrap_or_else(|| panic!("{:?} lacks a word", self.0))
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    fn cpu(&self) -> CpuId {
        cpu(self.value("cpu").unwrap_or("0"))
    }

    /// An order and a type, with flags.
    fn request(&self) -> Request {
        let named = |name: &str| AllocFlags::from_name(name).unwrap_or_else(|| panic!("{name}?"));
        let flags = self.value("flags").into_iter().flat_map(|flags| flags.split('+'));
        let flags = flags.map(named).fold(AllocFlags::empty(), |all, flag| all | flag);
        Request::new(order(number(self.plain(0)) as u8), kind(self.plain(1))).with(flags)
    }
}

pub(super) fn cpu(text: &str) -> CpuId {
    CpuId::new(number(text) as u16)
}

pub(super) fn kind(text: &str) -> Migratetype {
    let is = |kind: &&Migratetype| format!("{kind:?}").to_lowercase() == text;
    *Migratetype::ALL.iter().find(is).unwrap_or_else(|| panic!("a type? {text}"))
}

/// How many words a call has in their order, and which others.
fn known(verb: &str) -> (usize, &'static str) {
    match verb {
        "machine" => (1, "zone small cpus marks cma slice"),
        "tune" => (4, "high free_count factor gather row"),
        "take" | "all" => (2, "cpu flags into downto empty busy xN"),
        "bulk" => (2, "cpu flags into keeps"),
        "put" | "folios" | "array" | "range" | "get" => (1, "cpu by kept"),
        "split" => (2, ""),
        "drip" => (2, "cpu into"),
        "keep" => (1, "into"),
        "contig" => (1, "cpu into moving freeing stays"),
        "is" | "repeat" | "refuse" => (usize::MAX, ""),
        "note" => (2, ""),
        "isolate" | "unisolate" | "pin" | "tick" | "far" | "faraway" => (1, ""),
        _ => (0, ""),
    }
}

/// An error's name, and its frame where it names one.
fn named(error: &impl core::fmt::Debug) -> String {
    let text = format!("{error:?}");
    let name = text.split([' ', '{']).next().unwrap_or_default().to_owned();
    let frame = text
        .split_once("pfn: Pfn(0x")
        .and_then(|(_, rest)| u64::from_str_radix(&rest[..rest.find(')')?], 16).ok());
    frame.map_or(name.clone(), |pfn| format!("{name}@{}", pfn.wrapping_sub(BASE)))
}

/// CPUs keep nothing from now on.
fn off(classic: &Classic) {
    (0..64).for_each(|of| classic.set_tuning(CpuId::new(of), Tuning::new(1, 0, 0, false)));
    classic.drain_all();
}

impl Player {
    pub(super) fn new(design: &str) -> Self {
        let (design, lists, notes) = (design.to_owned(), Lists::default(), BTreeMap::new());
        Self { design, machine: None, frames: 0, lists, notes, wrong: Vec::new() }
    }

    pub(super) fn machine(&self) -> &Classic {
        self.machine.as_ref().expect("a rule begins with a machine")
    }

    pub(super) fn stats(&self) -> Stats {
        self.machine().stats()
    }

    /// Makes calls, each of which must succeed unless it is to be refused.
    pub(super) fn play(&mut self, calls: &[impl AsRef<str>]) {
        for call in calls.iter().map(AsRef::as_ref).filter(|call| !call.is_empty()) {
            if let Err(error) = self.call(call) {
                self.wrong.push(format!("{call}: {error}"));
            }
        }
    }

    fn call(&mut self, call: &str) -> Outcome {
        let (verb, rest) = call.split_once(' ').unwrap_or((call, ""));
        let words = Words(rest.split_whitespace().collect());
        let (plain, known) = known(verb);
        for word in words.0.iter().skip(plain) {
            let name = word.split_once('=').map_or(*word, |(name, _)| name);
            let name = if name.starts_with('x') { "xN" } else { name };
            assert!(known.split(' ').any(|of| of == name), "{call}: {word}?");
        }
        match verb {
            "machine" => self.build(&words),
            "is" => words.0.iter().for_each(|check| self.check(check)),
            "note" => {
                let is = self.ask(words.plain(1));
                self.notes.insert(words.plain(0).to_owned(), is);
            }
            "repeat" => {
                let (times, calls) = rest.split_once(' ').unwrap();
                let calls: Vec<&str> = calls.split(", ").map(str::trim).collect();
                (0..number(times)).for_each(|_| self.play(&calls));
            }
            "refuse" => {
                let (error, call) = rest.split_once(' ').unwrap();
                let got = self.call(call);
                if got != Err(error.to_owned()) {
                    return Err(format!("not {error} but {got:?}"));
                }
            }
            "whole" => {
                self.machine().drain_all();
                let frames = self.frames;
                self.check(&format!("map.free={frames}"));
                self.check(&format!("map.free_blocks={}", frames / 512));
            }
            "take" | "all" | "bulk" => return self.allocate(verb, &words),
            "put" | "folios" | "array" | "range" | "split" | "get" => {
                return self.give(verb, &words);
            }
            "drip" => {
                let mut taken = Vec::new();
                for some in self.lists.get(words.plain(0)).chunks(number(words.plain(1)) as usize) {
                    for &(pfn, of) in some {
                        let _ = self.machine().free(words.cpu(), pfn, order(of)).unwrap();
                    }
                    let single = Request::new(order(0), Migratetype::Movable);
                    taken.push((self.machine().alloc(words.cpu(), single).unwrap(), 0));
                }
                self.keep(&words, taken);
            }
            "keep" => {
                let chunks = self.lists.get(words.plain(0));
                self.keep(&words, chunks);
            }
            "pin" => {
                for block in 0..number(words.plain(0)) {
                    let frame = FrameRange::new(at(512 * block), 1).unwrap();
                    let got = self.machine().alloc_contig_range(cpu("0"), frame, &mut |_| false);
                    got.unwrap();
                }
            }
            "contig" => return self.contig(&words),
            "isolate" => {
                let range = self.lists.range(words.plain(0));
                return self.machine().isolate(range).map_err(|error| named(&error));
            }
            "unisolate" => self.machine().unisolate(self.lists.range(words.plain(0))).unwrap(),
            "tune" => self.tune(&words),
            _ => return self.change(verb, &words),
        }
        Ok(())
    }

    fn build(&mut self, words: &Words<'_>) {
        let mut config = Config::single_zone(Design::parse(&self.design).unwrap(), 2, 512);
        config.huge_pages = !words.has("small") && !words.has("zone");
        let range = match words.plain(0).parse::<u64>() {
            Ok(blocks) => FrameRange::new(at(0), blocks * 512).unwrap(),
            Err(_) => self.lists.range(words.plain(0)),
        };
        config.zone = ZoneConfig::new(range.start, range.len());
        config.zone.watermarks = Some(Watermarks::default());
        for (name, value) in words.0.iter().filter_map(|word| word.split_once('=')) {
            let zone = &mut config.zone;
            match name {
                "cpus" => config.cpus = number(value) as u16,
                "slice" => config.cache_slice = number(value),
                "cma" => zone.cma.push(self.lists.range(value)),
                "marks" if value == "kernel" => zone.watermarks = None,
                "marks" => {
                    let marks: Vec<u64> = value.split('/').map(number).collect();
                    let [min, low, high] = marks[..] else { panic!("three marks") };
                    zone.watermarks = Some(Watermarks { min, low, high });
                }
                _ => {}
            }
        }
        self.frames = config.zone.range.len();
        let classic = Classic::new(config).unwrap();
        if words.has("zone") {
            off(&classic);
            classic.reset_stats();
        }
        self.machine = Some(classic);
        self.lists = Lists::default();
    }

    fn tune(&self, words: &Words<'_>) {
        let [batch, low, high] = [1, 2, 3].map(|n| number(words.plain(n)) as u32);
        let value = |name, or| words.value(name).map_or(or, |value| number(value) as u32);
        let tuning = Tuning {
            high: value("high", low),
            free_count: value("free_count", 0),
            alloc_factor: value("factor", 0),
            previous_free_high_order: words.has("row"),
            ..Tuning::new(batch, low, high, words.has("gather"))
        };
        for name in words.plain(0).split(',') {
            self.machine().set_tuning(cpu(name), tuning);
        }
    }

    fn keep(&mut self, words: &Words<'_>, chunks: Vec<Chunk>) {
        let Some(name) = words.value("into") else { return };
        match name.strip_prefix('+') {
            Some(name) => self.lists.0.entry(name.to_owned()).or_default().extend(chunks),
            None => _ = self.lists.0.insert(name.to_owned(), chunks),
        }
    }

    fn allocate(&mut self, verb: &str, words: &Words<'_>) -> Outcome {
        let (classic, cpu) = (self.machine(), words.cpu());
        if verb == "bulk" {
            let request = Words([&["0"], &words.0[1..]].concat()).request();
            let mut slots = vec![None; number(words.plain(0)) as usize];
            let filled = words.value("keeps").map(|list| self.lists.first(list));
            slots.get_mut(3).into_iter().for_each(|slot| *slot = filled);
            let got = classic.alloc_bulk(cpu, request.migratetype, request.flags, &mut slots);
            got.map_err(|error| named(&error))?;
            let chunks = slots.into_iter().flatten().map(|pfn| (pfn, 0)).collect();
            self.keep(words, chunks);
            return Ok(());
        }
        let request = words.request();
        let take = || match words.has("busy") {
            true => classic.alloc_finding_busy(cpu, request),
            false => classic.alloc(cpu, request),
        };
        let times = words.0.iter().find_map(|word| word.strip_prefix('x'));
        let mut left = times.map_or(1, number);
        let downto = words.value("downto").map(number);
        let mut chunks = Vec::new();
        loop {
            let goes_on = match (verb, downto) {
                ("all", _) => true,
                // Until all that is free is on lists.
                (_, Some(0)) => classic.memory_map().free > classic.memory_map().on_pcp,
                (_, Some(free)) => classic.memory_map().free > free,
                _ if words.has("empty") => classic.pcp_count(cpu) > 0,
                _ => left > 0,
            };
            if !goes_on {
                break;
            }
            left = left.saturating_sub(1);
            match take() {
                Ok(pfn) => chunks.push((pfn, request.order.get())),
                Err(_) if verb == "all" => break,
                Err(error) => return Err(named(&error)),
            }
        }
        self.keep(words, chunks);
        Ok(())
    }

    fn give(&mut self, verb: &str, words: &Words<'_>) -> Outcome {
        let (classic, cpu) = (self.machine(), words.cpu());
        let kept = words.value("kept").map_or(0, number);
        let as_said = |got: u64| if got == kept { Ok(()) } else { Err(format!("kept {got}")) };
        if verb == "range" {
            let range = self.lists.range(words.plain(0));
            let got = classic.free_contig_range(cpu, range);
            return got.map_err(|error| named(&error)).and_then(as_said);
        }
        let chunks = self.lists.get(words.plain(0));
        match verb {
            "put" => {
                let put = if kept == 0 { Put::Freed } else { Put::Kept };
                for (pfn, of) in chunks {
                    let got = classic.free(cpu, pfn, order(of)).map_err(|error| named(&error))?;
                    if got != put {
                        return Err(format!("{got:?}"));
                    }
                }
            }
            "folios" => {
                let by = words.value("by").map_or(31, number) as usize;
                for batch in chunks.chunks(by) {
                    let batch: Vec<_> = batch.iter().map(|&(pfn, of)| (pfn, order(of))).collect();
                    classic.free_folios(cpu, &batch).map_err(|error| named(&error))?;
                }
            }
            "array" => {
                let pfns: Vec<Pfn> = chunks.iter().map(|(pfn, _)| *pfn).collect();
                let got = classic.free_array(cpu, &pfns);
                return got.map_err(|error| named(&error)).and_then(as_said);
            }
            "get" => {
                for (pfn, _) in chunks {
                    classic.get(pfn).map_err(|error| named(&error))?;
                }
            }
            _ => {
                let to = number(words.plain(1)) as u8;
                let mut parts = Vec::new();
                for (pfn, of) in chunks {
                    let got = classic.split(pfn, order(of), order(to));
                    got.map_err(|error| named(&error))?;
                    let starts = (0..1 << of).step_by(1 << to);
                    parts.extend(starts.map(|part| (Pfn::new(pfn.get() + part), to)));
                }
                self.lists.0.insert(words.plain(0).to_owned(), parts);
            }
        }
        Ok(())
    }

    fn contig(&mut self, words: &Words<'_>) -> Outcome {
        let (classic, cpu) = (self.machine(), words.cpu());
        let range = self.lists.range(words.plain(0));
        let stays = words.value("stays").map_or_else(Vec::new, |stays| self.lists.get(stays));
        let mut moved = Vec::new();
        let mut migrate = |used: InUse| {
            let goes = words.has("moving") || words.has("freeing");
            if !goes || stays.iter().any(|(pfn, _)| *pfn == used.pfn) {
                return false;
            }
            if words.has("moving") {
                let to =
                    classic.alloc(cpu, Request::new(used.order, Migratetype::Movable)).unwrap();
                assert!(!range.contains(to), "a frame of an isolated block was handed out");
                moved.push((to, used.order.get()));
            }
            classic.free(cpu, used.pfn, used.order) == Ok(Put::Freed)
        };
        let got = classic.alloc_contig_range(cpu, range, &mut migrate);
        self.lists.0.insert("moved".to_owned(), moved);
        got.map_err(|error| named(&error))?;
        let frames = (range.start.get()..range.end.get()).map(|pfn| (Pfn::new(pfn), 0)).collect();
        self.keep(words, frames);
        Ok(())
    }

    /// What concerns no chunk.
    fn change(&mut self, verb: &str, words: &Words<'_>) -> Outcome {
        let classic = self.machine();
        let of = || cpu(words.plain(0));
        match verb {
            "count" => classic.reset_stats(),
            "forget" => classic.forget_setup(),
            "drain" => classic.drain_all(),
            "tick" => classic.tick(of()),
            "far" => classic.tick_remote_node(of()),
            "faraway" => {
                while classic.pcp_count(of()) > 0 {
                    classic.tick_remote_node(of());
                }
            }
            "off" => off(classic),
            "reclaim" => classic.set_reclaim(true),
            "normal" => classic.set_reclaim(false),
            "elsewhere" => classic.set_kswapd_elsewhere(),
            _ => panic!("no call is {verb}"),
        }
        Ok(())
    }

    /// Checks `WHAT=VALUE`, also with `<` and `>`; and that the machine agrees with itself.
    pub(super) fn check(&mut self, check: &str) {
        let mut depth = 0;
        let sign = check.find(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0 && "=<>".contains(c)
        });
        let sign = sign.unwrap_or_else(|| panic!("a check? {check}"));
        let (what, value) = (&check[..sign], self.value(&check[sign + 1..]));
        let is = self.ask(what);
        let numbers = (is.parse::<u64>(), value.parse::<u64>());
        let right = match (&check[sign..=sign], numbers) {
            ("<", (Ok(is), Ok(value))) => is < value,
            (">", (Ok(is), Ok(value))) => is > value,
            ("=", _) => is == value,
            _ => false,
        };
        if !right {
            self.wrong.push(format!("{check}, but is {is}"));
        }
        if self.frames <= 1 << 20 {
            self.wrong.extend(self.machine().validate().err());
        }
    }
}

#[test]
fn words_that_nobody_knows_are_no_rule() {
    for wrong in ["machine 16 zoen", "machine 16 cpu=2", "take 0 movable bussy", "drain 1"] {
        let mut player = Player::new("7.1");
        player.play(&["machine 16"]);
        let call = std::panic::AssertUnwindSafe(|| player.call(wrong));
        assert!(std::panic::catch_unwind(call).is_err(), "{wrong}");
    }
}
