//! A flight recorder: the last seconds of a machine, written when something asks for them.
//!
//! ```text
//!  kernel ──> ring buffers, full, the oldest event overwritten ──────> on a dump: read out and
//!  /proc  ──> moments: zoneinfo and so on, every eighth of the time      written as Parquet
//!
//!  events   . . : : : : : : : : : : : : : : :      what the buffers hold
//!  moments    |     |     |     |     |     |      known states of memory
//!                   └── recording ──────────┘      begins at a moment, ends at the dump
//! ```
//!
//! A replay needs the state of memory at the first event. Which will be the oldest nobody knows
//! beforehand, so states are taken as time goes by, and a recording begins at one of them. No event
//! is missing behind it, unless buffers turn over faster than states are taken: that is counted.
//!
//! Reading takes events out while recording goes on and states are taken. Another thread packs
//! them. Only where those to be read next would be overwritten, recording stands still until half
//! of a buffer is empty.

use std::collections::VecDeque;
use std::io::Write;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::read_out::ReadOut;
use super::{About, Instance, RecordError, Recording, Tally, Tracefs, describe_memory, tracefs};
use crate::{Event, Packed, TraceWriter};

/// The state of memory is taken down so many times in the time that is kept.
const MOMENTS: u64 = 8;
/// The least that a CPU's buffer may have: pages of the kernel's, of which it needs a few.
const LEAST_KIB: u64 = 16;
/// A recording should be so long at least.
const LEAST_NS: u64 = 1_000_000_000;
/// How long a CPU may be busy writing an event that is already stamped.
const SETTLES: Duration = Duration::from_millis(20);
/// Pieces of events that wait to be packed at most, some 20 MiB.
const QUEUED: usize = 32;

/// A state of memory.
#[derive(Debug)]
struct Moment {
    /// When, on the trace's clock.
    at_ns: u64,
    files: Packed,
    /// What the buffers had lost.
    tally: Tally,
}

/// The last seconds of the machine, in buffers that take no more than a given memory over all CPUs.
#[derive(Debug)]
pub struct Window {
    instance: Instance,
    memory: u64,
    cpus: usize,
    /// KiB of a CPU's buffer.
    each: u64,
    last_ns: u64,
    /// Never empty.
    moments: VecDeque<Moment>,
    /// Since when recording stands still.
    stopped_ns: Option<u64>,
    /// How long it has stood still in a dump.
    paused_ns: u64,
}

/// A recording of the last seconds.
#[derive(Debug)]
pub struct Dumped {
    /// The rows, and the files that are packed in.
    pub recording: Recording,
    /// How long it is.
    pub length: Duration,
    /// How long recording stood still meanwhile, so as to overwrite none of it.
    pub paused: Duration,
    /// The buffers hold less than the time that was asked for.
    pub is_short: bool,
}

impl Window {
    /// Begins to record into an instance whose buffers take `memory` bytes together at most.
    ///
    /// # Errors
    ///
    /// [`RecordError::Kernel`], and [`RecordError::TooLittle`] where each CPU would have less than
    /// 16 KiB; nothing is left behind then.
    pub fn new(tracefs: &Tracefs, memory: u64, last: Duration) -> Result<Self, RecordError> {
        let window = Self::of(tracefs.instance(LEAST_KIB)?, memory, last)?;
        window.instance.start()?;
        Ok(window)
    }

    fn of(instance: Instance, memory: u64, last: Duration) -> Result<Self, RecordError> {
        instance.overwrite()?;
        let last_ns = u64::try_from(last.as_nanos()).unwrap_or(u64::MAX);
        let (moments, stopped_ns) = (VecDeque::new(), None);
        let mut window =
            Self { instance, memory, cpus: 0, each: 0, last_ns, moments, stopped_ns, paused_ns: 0 };
        window.fit(tracefs::cpus())?;
        window.look()?;
        Ok(window)
    }

    /// Divides the memory among so many CPUs.
    fn fit(&mut self, cpus: usize) -> Result<(), RecordError> {
        self.cpus = cpus;
        let mut each = self.memory / 1024 / self.cpus as u64;
        // A CPU that has gone keeps its buffer, and the kernel rounds up.
        for _ in 0..4 {
            if each < LEAST_KIB {
                return Err(RecordError::TooLittle { cpus: self.cpus });
            }
            self.instance.resize(each)?;
            self.each = each;
            let total = self.instance.total_kib()?;
            if total * 1024 <= self.memory {
                break;
            }
            each = each * (self.memory / 1024) / total - 1;
        }
        Ok(())
    }

    /// The instance, for what it can say of itself.
    #[must_use]
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// To be called every second or so: takes the state of memory down when it is time, and gives
    /// CPUs that have come a part of the memory. Complexity: the CPUs.
    ///
    /// # Errors
    ///
    /// [`RecordError::Kernel`], and [`RecordError::TooLittle`] with more CPUs than there is memory
    /// for.
    pub fn tend(&mut self) -> Result<(), RecordError> {
        let cpus = tracefs::cpus();
        if cpus > self.cpus {
            self.fit(cpus)?;
        }
        let whole_from_ns = self.whole_from_ns(&self.instance.tally()?);
        let newest = self.moments.back().map_or(0, |moment| moment.at_ns);
        let now_ns = now_ns();
        // Where buffers turn over sooner, a recording has half of what they hold.
        let is_outrun = newest < u64::midpoint(whole_from_ns, now_ns);
        if now_ns >= newest.saturating_add(self.last_ns / MOMENTS) || is_outrun {
            self.look()?;
        }
        Ok(())
    }

    /// Takes the state of memory down, and forgets those that no recording will begin at.
    fn look(&mut self) -> Result<(), RecordError> {
        let mut files = Packed::default();
        let (mut at_ns, mut tally) = (now_ns(), self.instance.tally()?);
        // Pages come and go while the files are read: the next try may be luckier.
        for _ in 0..4 {
            if describe_memory(&mut files, "before") {
                break;
            }
            (at_ns, tally) = (now_ns(), self.instance.tally()?);
        }
        self.moments.push_back(Moment { at_ns, files, tally });
        let old_ns = self.whole_from_ns(&tally).max(at_ns.saturating_sub(self.last_ns));
        while self.moments.len() > 2 && self.moments[1].at_ns <= old_ns {
            self.moments.pop_front();
        }
        Ok(())
    }

    /// Since when no event is missing.
    fn whole_from_ns(&self, tally: &Tally) -> u64 {
        let oldest = self.moments.front().map_or(0, |moment| moment.tally.overwritten);
        if tally.overwritten > oldest { tally.whole_from_ns } else { 0 }
    }

    /// Where a recording that ends at `end_ns` begins: at the latest state that is old enough, else
    /// at the first behind which no event is missing. Where that leaves less than a second, one
    /// with holes says more.
    fn begin(&self, end_ns: u64, whole_from_ns: u64) -> &Moment {
        let wanted = end_ns.saturating_sub(self.last_ns);
        let whole = || self.moments.iter().filter(|moment| moment.at_ns >= whole_from_ns);
        let old = whole().rfind(|moment| moment.at_ns <= wanted);
        let is_long = |moment: &&Moment| moment.at_ns.saturating_add(LEAST_NS) <= end_ns;
        let long = || self.moments.iter().rfind(is_long);
        old.or_else(|| whole().next().filter(is_long)).or_else(long).unwrap_or(&self.moments[0])
    }

    /// Reads what the buffers hold of the last seconds out, and writes it as a Parquet trace;
    /// `path` is for messages. What `about` says of files and seconds is replaced. Recording goes
    /// on meanwhile, but for pauses, and the next dump begins behind this one.
    ///
    /// # Errors
    ///
    /// [`RecordError::Kernel`]; [`RecordError::Trace`] where it cannot be written or there was no
    /// event, after which a later dump can be made.
    pub fn dump(
        &mut self,
        about: &About,
        (output, path): (impl Write + Send, &Path),
    ) -> Result<Dumped, RecordError> {
        let (end_ns, tally) = (now_ns(), self.instance.tally()?);
        let whole_from_ns = self.whole_from_ns(&tally);
        let begin = self.begin(end_ns, whole_from_ns);
        let (from_ns, before) = (begin.at_ns, begin.tally);
        let length = Duration::from_nanos(end_ns.saturating_sub(from_ns));
        let (files, seconds) = (begin.files.clone(), length.as_secs_f64());
        let meta = super::meta(&About { files: files.clone(), seconds, ..about.clone() });
        let mut writer = TraceWriter::new(output, path, meta, super::ZSTD_LEVEL)?;
        self.paused_ns = 0;
        self.keep_ahead(from_ns)?;
        describe_memory(writer.files_mut(), "after");
        std::thread::sleep(SETTLES);
        let read = self.write((from_ns, end_ns), &files, writer);
        let after = self.instance.tally();
        self.go_on()?;
        let after = after?;
        // Events are gone that belong to states from before.
        let read_ns = read.as_ref().map_or(u64::MAX, |(_, read)| read.latest_ns);
        self.moments.retain(|moment| moment.at_ns > read_ns);
        if self.moments.is_empty() {
            self.look()?;
        }
        let (writer, read) = read?;

        // Before the first event of a CPU the kernel tells all that it has overwritten since the
        // last dump, some of it older than this recording.
        let overwritten = read.overwritten.min(after.overwritten - before.overwritten);
        let dropped = |tally: Tally| tally.lost - tally.overwritten;
        let lost = overwritten + dropped(after) - dropped(before);
        let recording = super::finish(&self.instance, writer, lost, read)?;
        let is_short = whole_from_ns > end_ns.saturating_sub(self.last_ns);
        let paused = Duration::from_nanos(self.paused_ns);
        Ok(Dumped { recording, length, paused, is_short })
    }

    /// Reads events out, and has another thread pack them: that takes seconds now and then, in
    /// which more are to be read.
    fn write<W: Write + Send>(
        &mut self,
        span: (u64, u64),
        files: &Packed,
        mut writer: TraceWriter<W>,
    ) -> Result<(TraceWriter<W>, ReadOut), RecordError> {
        std::thread::scope(|scope| {
            let (pieces, queue) = mpsc::sync_channel::<Vec<Event>>(QUEUED);
            let writing = scope.spawn(move || {
                queue.into_iter().try_for_each(|events| writer.write(&events)).map(|()| writer)
            });
            let read = self.read(span, files, &pieces);
            drop(pieces);
            let written = writing.join().unwrap_or_else(|panic| resume_unwind(panic));
            Ok((written?, read?))
        })
    }

    fn read(
        &mut self,
        (from_ns, end_ns): (u64, u64),
        files: &Packed,
        pieces: &SyncSender<Vec<Event>>,
    ) -> Result<ReadOut, RecordError> {
        let mut reading = self.instance.read_out((from_ns, end_ns), files)?;
        loop {
            let mut events = Vec::new();
            let has_more = reading.next(&mut events)?;
            let mut sent = pieces.try_send(events);
            // A slow disk: meanwhile the buffers fill.
            while let Err(TrySendError::Full(events)) = sent {
                self.tend_in_dump(from_ns)?;
                std::thread::sleep(SETTLES);
                sent = pieces.try_send(events);
            }
            // A writer that has given up says why.
            if sent.is_err() || !has_more {
                return Ok(reading.read);
            }
            self.tend_in_dump(from_ns)?;
        }
    }

    fn tend_in_dump(&mut self, from_ns: u64) -> Result<(), RecordError> {
        self.keep_ahead(from_ns)?;
        self.tend()
    }

    /// Stops recording where a CPU is about to overwrite what is of a recording that begins at
    /// `from_ns`, and goes on when half of its buffer is empty.
    fn keep_ahead(&mut self, from_ns: u64) -> Result<(), RecordError> {
        let size = self.each * 1024;
        let full = if self.stopped_ns.is_none() { size - (size / 16).max(8192) } else { size / 2 };
        let is_near =
            |cpu: &Tally| cpu.bytes > full && cpu.whole_from_ns.saturating_add(LEAST_NS) > from_ns;
        match (self.instance.tallies()?.iter().any(is_near), self.stopped_ns) {
            (true, None) => {
                self.instance.stop()?;
                self.stopped_ns = Some(now_ns());
                Ok(())
            }
            (false, Some(_)) => self.go_on(),
            _ => Ok(()),
        }
    }

    /// Goes on recording after a pause, before which no other recording may begin.
    fn go_on(&mut self) -> Result<(), RecordError> {
        let Some(since_ns) = self.stopped_ns else { return Ok(()) };
        self.instance.resume()?;
        self.stopped_ns = None;
        self.paused_ns += now_ns() - since_ns;
        self.moments.clear();
        self.look()
    }
}

/// The trace's clock, `mono`.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{about, instance};
    use super::*;
    use crate::{OpenOptions, Source, TraceReader, packed_files};

    /// Events of each second from 1 to 9; before that of second 5 and that of second 7 some are
    /// gone.
    fn pipe() -> String {
        let event = |second| {
            format!(
                "            make-77    [002] .....     {second}.000001: mm_page_free: page=x pfn=0x1{second} order=0\n"
            )
        };
        let tick = "     kworker/1:0-19581 [001] .....     8.000002: workqueue_execute_start: work struct 0: function vmstat_update\n";
        let mut lines: Vec<String> = (1..10).map(event).collect();
        lines.insert(8, tick.to_owned());
        lines.insert(6, "CPU:2 [LOST 30 EVENTS]\n".to_owned());
        lines.insert(4, "CPU:2 [LOST 1000 EVENTS]\n".to_owned());
        // No reader would take it.
        lines.push(event(8));
        lines.concat()
    }

    fn stats(overrun: u64, oldest: &str) -> String {
        format!("entries: 9\noverrun: {overrun}\ncommit overrun: 0\noldest event ts: {oldest}\n")
    }

    /// One with states of memory at these seconds, and what had been overwritten then.
    fn window(moments: &[(u64, u64)], stats: &str) -> (tempfile::TempDir, Window) {
        let (folder, instance) = instance(true);
        for name in ["options", "per_cpu/cpu2"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("buffer_total_size_kb", "64\n");
        write("per_cpu/cpu2/stats", stats);
        write("trace_pipe", &pipe());
        let mut window = Window::of(instance, 1 << 20, Duration::from_secs(1_000_000)).unwrap();
        window.moments.clear();
        for &(second, overwritten) in moments {
            let tally = Tally { overwritten, lost: overwritten, ..Tally::default() };
            let mut files = Packed::default();
            files.insert("zoneinfo.before.txt", second.to_string());
            let at_ns = second * 1_000_000_000;
            window.moments.push_back(Moment { at_ns, files, tally });
        }
        (folder, window)
    }

    /// Seconds of the events that are written, the state that they begin at, and what is said.
    fn dumped(window: &mut Window) -> (Vec<u64>, String, Dumped) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let file = fs::File::create(&path).unwrap();
        let dumped = window.dump(&about(), (file, &path)).unwrap();
        let source = Source::Path(path);
        let mut reader = TraceReader::open(&source, OpenOptions::default()).unwrap();
        assert_eq!(reader.info().lost_events, Some(dumped.recording.lost));
        assert_eq!(reader.info().description["trigger"], "a test");
        let mut events = Vec::new();
        reader.next_batch(&mut events).unwrap();
        let files = packed_files(&source).unwrap();
        assert_eq!(files, dumped.recording.files);
        let seconds = events.iter().map(|event| event.ts_ns / 1_000_000_000).collect();
        (seconds, files.get("zoneinfo").unwrap().1.to_owned(), dumped)
    }

    #[test]
    fn a_recording_begins_at_a_known_state_behind_which_nothing_is_missing() {
        // Whole since second 5: states 2 and 4 are too old. What is gone before 7 is missing.
        let moments = [(2, 0), (4, 500), (6, 900), (8, 1000)];
        let (_folder, mut window) = window(&moments, &stats(1030, "5.000001"));
        let (seconds, state, said) = dumped(&mut window);
        assert_eq!((seconds, &*state), (vec![6, 7, 8, 9], "6"));
        assert_eq!(
            (said.recording.lost, said.is_short),
            (31, true),
            "and the one that came too late"
        );
        // No second for its 9 events.
        assert_eq!(said.paused, Duration::ZERO);
        assert_eq!(said.recording.files.get("ticks").unwrap().1.lines().count(), 2);
        assert_eq!(window.moments.len(), 1, "the next begins behind this one");
        assert!(window.moments[0].at_ns > 9_000_000_000);
    }

    #[test]
    fn recording_stands_still_only_where_events_to_be_read_would_be_overwritten() {
        // However many events there are to be read.
        let held = "entries: 9000000\nbytes: ";
        for (bytes, oldest, is_paused) in [(990, 5.1, true), (990, 4.9, false), (900, 5.1, false)] {
            let stats = stats(1030, &format!("{oldest:.6}"));
            let (folder, mut window) = window(&[(4, 500), (6, 1000)], &stats);
            let bytes = format!("{held}{}", bytes * window.each);
            let stats = stats.replace("entries: 9", &bytes);
            fs::write(folder.path().join("per_cpu/cpu2/stats"), stats).unwrap();
            let (_, state, said) = dumped(&mut window);
            assert_eq!(
                (&*state, said.paused > Duration::ZERO),
                ("6", is_paused),
                "{oldest} {bytes}"
            );
            let switch = fs::read_to_string(folder.path().join("tracing_on")).unwrap();
            assert_eq!(switch, if is_paused { "1" } else { "0" }, "never begun, on again");
        }
    }

    /// Recording may have stood still before it.
    #[test]
    fn what_comes_behind_the_end_is_of_no_recording() {
        let (folder, mut window) = window(&[(4, 500), (6, 1000)], &stats(1030, "5.000001"));
        let later = "            make-77    [002] .....     99999999.000001: mm_page_free: page=x pfn=0x1 order=0\n";
        fs::write(folder.path().join("trace_pipe"), pipe() + later).unwrap();
        assert_eq!(dumped(&mut window).0, [6, 7, 8, 9]);
    }

    #[test]
    fn states_are_taken_while_events_are_read() {
        let (folder, mut window) = window(&[(4, 500), (6, 1000)], &stats(1030, "5.000001"));
        fs::write(folder.path().join("trace_pipe"), pipe().repeat(1 << 12)).unwrap();
        window.last_ns = 8;
        dumped(&mut window);
        assert_eq!(window.moments.len(), 2, "of pieces, of which the last two are kept");
    }

    #[test]
    fn what_was_overwritten_behind_the_latest_state_is_lost() {
        // The buffers turned over since second 3: they are whole from 5 on.
        let (_folder, mut window) = window(&[(1, 0), (3, 700)], &stats(1030, "5.000001"));
        // Behind this one there is next to nothing.
        let (at_ns, files) = (now_ns(), Packed::default());
        window.moments.push_back(Moment { at_ns, files, tally: Tally::default() });
        let (seconds, state, said) = dumped(&mut window);
        assert_eq!((seconds.len(), &*state, said.recording.lost), (7, "3", 331));
    }

    #[test]
    fn of_buffers_that_are_not_full_all_is_kept_and_old_states_are_forgotten() {
        let (_folder, mut window) = window(&[(1, 1030), (4, 1030)], &stats(1030, "8.000001"));
        assert_eq!(window.begin(u64::MAX, 0).at_ns, 4_000_000_000, "old enough");
        let (seconds, state, said) = dumped(&mut window);
        assert_eq!((seconds.len(), &*state, said.is_short), (9, "1", false));
        window.last_ns = 1;
        (0..5).for_each(|_| window.look().unwrap());
        assert_eq!(window.moments.len(), 2);
    }

    /// A state just before the dump would make a recording of nothing, one from before the oldest
    /// event one with holes.
    #[test]
    fn states_are_taken_half_way_through_what_the_buffers_hold() {
        let (_folder, mut window) = window(&[(2, 0), (8, 1000)], &stats(1030, "5.000001"));
        window.last_ns = u64::MAX;
        window.tend().unwrap();
        let newest = window.moments.back().unwrap().at_ns;
        assert!(newest > 9_000_000_000, "of now");
        window.tend().unwrap();
        assert_eq!(window.moments.back().unwrap().at_ns, newest, "it is young enough");
    }

    #[test]
    fn buffers_take_the_memory_that_is_given_whatever_the_kernel_makes_of_it() {
        let (folder, mut window) = window(&[], &stats(0, "0"));
        let each = || fs::read_to_string(folder.path().join("buffer_size_kb")).unwrap();
        assert_eq!(each().parse::<usize>().unwrap(), 1024 / tracefs::cpus());
        // As with CPUs that have gone.
        fs::write(folder.path().join("buffer_total_size_kb"), "2048").unwrap();
        window.cpus = 0;
        window.tend().unwrap();
        assert!(each().parse::<usize>().unwrap() < 1024 / tracefs::cpus() / 2, "{}", each());
        fs::write(folder.path().join("buffer_total_size_kb"), "64").unwrap();
        window.memory = 256 << 20;
        window.fit(256).unwrap();
        assert_eq!(each(), "1024", "256 CPUs have no more together");
        window.memory = (255 * 16) << 10;
        let said = window.fit(256).unwrap_err().to_string();
        assert!(said.starts_with("too little memory"), "{said}");
    }
}
