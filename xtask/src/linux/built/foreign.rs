//! Tests that others wrote, on the kernel as it is and on Freehold's (`--foreign`): Linux's own
//! `tools/testing/selftests/mm`, by its makefile and its runner, and loads of ours beside them. The
//! guest's part is `os/linux/built/foreign`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;
use serde_json::json;

use super::super::tools::{self, output};
use super::super::{Arguments, Trouble};
use super::{Design, Kind, boots, kernel, source};
use crate::build;
use crate::qemu::{End, Machine};

/// The tests' folder in the kernel's source.
const TESTS: &str = "tools/testing/selftests/mm";

/// Seconds for a boot, where nobody says another number: so many, or so many for each test.
const LIMIT: u64 = 3 * 3600;
const LIMIT_OF_EACH: u64 = 360;

/// What else a guest is told in each of its boots, and what our loads are called then.
const BOOTS: [(&str, &str); 2] = [("", ""), (" cma=64M", ", CMA")];

/// A program that others wrote, and the suite of its tests.
const STRESS: &str = "stress-ng";

/// Our loads and whether there is room for huge pages: the suite that each boot has.
const OURS: &str = "ours";

/// Builds both kernels and the tests, boots each, and prints the table.
pub(super) fn run(args: &Arguments, wanted: &[String], folder: &Path) -> Result<End, Trouble> {
    let &[cpus] = &args.cpus[..] else {
        return Err(Trouble::Wrong("--foreign is for one number of --cpus".to_owned()));
    };
    let kind = |design| Kind::of(design, &args.checks);
    let kinds = [kind(Design::Vanilla)?, kind(Design::Freehold)?];
    let qemu = super::qemu(args)?;
    let (mut suites, not_built) = suites(folder)?;
    let mut known = categories(folder)?;
    if let Some(ltp) = &args.ltp {
        let mut tests = Vec::new();
        programs(&ltp.join("testcases/kernel/mem"), &mut tests)?;
        // It says of those without libraries that it finds none, and fails.
        let said = Command::new("ldd").args(tests.iter().map(|(_, path)| path)).output()?.stdout;
        suites.extend(tools::libraries(&String::from_utf8_lossy(&said)));
        suites.extend(tests);
        known += ",ltp";
    }
    if let Some(name) = wanted.iter().find(|&name| !known.split(',').any(|of| of == name)) {
        return Err(Trouble::Wrong(format!("no category {name}; there are {known}")));
    }
    // Two programs may want one library.
    suites.sort();
    suites.dedup_by(|one, other| one.0 == other.0);
    let wanted = if wanted.is_empty() { known } else { wanted.join(",") };
    let (limit, seconds) = limits(args.timeout, &wanted, &suites)?;
    let machine = super::machine(args, qemu, cpus);
    let archive = folder.join("foreign.cpio");
    fs::rename(boots::files(folder, &suites)?, &archive)?;
    let (mut ended, mut outcomes) = (End::Passed, [Outcomes::new(), Outcomes::new()]);
    for (kind, outcomes) in kinds.into_iter().zip(&mut outcomes) {
        let image = super::image(args, folder, &kind)?;
        let (archive, low, movable) = (archive.clone(), args.low.into(), args.movable);
        let guest = boots::Guest { image, archive, low, movable };
        for (more, suffix) in BOOTS {
            let suites = if suffix.is_empty() { &wanted } else { OURS };
            let mut words = boots::words(&kind);
            words.push(format!("built.foreign={suites}{more} built.seconds={seconds}"));
            let (end, lines) = boots::run(&machine, &guest, &words, limit)?;
            eprintln!("{}{suffix}: {end:?}", kind.name());
            ended = super::worse(ended, end);
            add(outcomes, &lines, suffix);
        }
    }
    let [vanilla, freehold] = outcomes;
    let rows = rows(vanilla, freehold);
    let all = json!({
        "machine": whose(&machine), "counts": COUNTS, "rows": rows, "not_built": not_built
    });
    let suffix = kind(Design::Vanilla)?.suffix();
    let file = folder.with_file_name(format!("foreign{suffix}.json"));
    fs::write(&file, format!("{all:#}\n"))?;
    print!("{}", table(&rows, &not_built));
    eprintln!("all rows: {}", file.display());
    Ok(judge(&rows, ended))
}

/// Seconds for a boot, and for each category in it, or each program where those are one: together
/// a third of the boot at most, which is a busy machine's.
fn limits(told: Option<u64>, wanted: &str, suites: &Files) -> Result<(u64, u64), Trouble> {
    let script = fs::read_to_string(build::root().join("os/linux/built/foreign"))?;
    let listed = script.split_once("<< END\n").and_then(|(_, rest)| rest.split_once("\nEND\n"));
    let in_list = listed.map_or(0, |(list, _)| list.lines().count());
    let tests = wanted.split(',').map(|category| match category {
        STRESS => in_list,
        "ltp" => suites.iter().filter(|(name, _)| name.starts_with("ltp/")).count(),
        _ => 1,
    });
    let tests = (tests.sum::<usize>() as u64).max(1);
    let limit = told.unwrap_or(LIMIT.max(LIMIT_OF_EACH * tests));
    Ok((limit, limit / 3 / tests))
}

fn whose(machine: &Machine) -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or("machine without a name", |(_, name)| name);
    let how = machine.accelerator.describe();
    format!("Linux {}, {} CPUs, {}, {how}, {name}", source::VERSION, machine.cpus, machine.memory)
}

/// Files of a guest: names in it, and where they are.
type Files = Vec<(String, PathBuf)>;

/// Builds the tests, as many as build without a shared library: what is carried into the guest, and
/// which were not built.
fn suites(folder: &Path) -> Result<(Files, Vec<String>), Trouble> {
    let tests = source::source(folder)?.join(TESTS);
    let make = kernel::Make::of(folder, "headers")?;
    let (headers, libraries) = (make.objects.join("usr/include"), make.tools.join("usr"));
    if !headers.is_dir() {
        tools::run(make.command("headers").arg("-s"))?;
    }
    let to = folder.join("foreign");
    fs::create_dir_all(&to)?;
    eprintln!("building {TESTS}");
    let mut make = Command::new("nice");
    make.args(["-n", "10", "make", "-k", "-s", "-C"]).arg(&tests);
    make.args(["ARCH=x86_64", "CC=cc -static"]).arg(format!("OUTPUT={}", to.display()));
    make.arg(format!("KHDR_INCLUDES=-isystem {}", headers.display()));
    let flags = "EXTRA_CFLAGS=-w -I{0}/include -L{0}/lib/x86_64-linux-gnu";
    make.arg(flags.replace("{0}", &libraries.display().to_string()));
    let made = make.arg("all").env_remove("MAKEFLAGS").output()?;
    fs::write(folder.join("foreign.log"), &made.stderr)?;
    let mut files = vec![("foreign".to_owned(), build::root().join("os/linux/built/foreign"))];
    for (from, scripts) in [(&to, false), (&tests, true)] {
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            if path.is_file() && path.extension().is_some_and(|end| end == "sh") == scripts {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                files.push((format!("mm/{name}"), path.clone()));
            }
        }
    }
    if !files.iter().any(|(name, _)| name.starts_with("mm/") && !name.ends_with(".sh")) {
        return Err(Trouble::Missing(format!("none of {TESTS} was built: foreign.log")));
    }
    let bash = build::in_path("bash");
    let bash = bash.ok_or_else(|| Trouble::Missing("bash is not installed".to_owned()))?;
    files.extend(tools::libraries(&output(Command::new("ldd").arg(&bash))?));
    files.push(("bin/bash".to_owned(), bash));
    match stress(folder) {
        Ok(stress) => files.extend(stress),
        Err(Trouble::Missing(why)) => eprintln!("SKIPPED: {STRESS}: {why}"),
        Err(wrong) => return Err(wrong),
    }
    Ok((files, not_built(&String::from_utf8_lossy(&made.stderr))))
}

/// Of all folders below that one what has no ending and can be run.
fn programs(folder: &Path, files: &mut Files) -> Result<(), Trouble> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            programs(&path, files)?;
        } else if path.extension().is_none() && fs::metadata(&path)?.permissions().mode() & 1 == 1 {
            files.push((format!("ltp/{name}"), path.clone()));
        }
    }
    Ok(())
}

/// Debian's package of it, unpacked, with the libraries that it is linked with.
fn stress(folder: &Path) -> Result<Files, Trouble> {
    let file = "usr/bin/stress-ng";
    let names = format!("{STRESS} libjudydebian1 libsctp1 libipsec-mb1");
    let there = source::unpacked(folder, STRESS, &names, file)?;
    let mut ldd = Command::new("ldd");
    ldd.env("LD_LIBRARY_PATH", there.join("usr/lib/x86_64-linux-gnu")).arg(there.join(file));
    let said = output(&mut ldd)?;
    if let Some(line) = said.lines().find(|line| line.ends_with("not found")) {
        return Err(Trouble::Missing(line.trim().to_owned()));
    }
    let mut files = tools::libraries(&said);
    files.push((STRESS.to_owned(), there.join(file)));
    Ok(files)
}

/// The categories that the tests' runner tells of, and stress-ng.
fn categories(folder: &Path) -> Result<String, Trouble> {
    let runner = fs::read_to_string(folder.join("source").join(TESTS).join("run_vmtests.sh"))?;
    let names = runner.lines().filter_map(|line| line.strip_prefix("- "));
    let names: Vec<&str> = names.chain([STRESS]).collect();
    Ok(names.join(","))
}

/// The programs that make could not make.
fn not_built(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| line.starts_with("make") && line.contains("] Error"));
    let of = |line: &str| Some(line.split_once(']')?.0.rsplit(['/', ' ']).next()?.to_owned());
    lines.filter_map(of).collect()
}

/// What is counted of a test; from the fourth on of all of a suite.
const COUNTS: [&str; 9] = [
    "parts that are well",
    "that fail",
    "skipped",
    "OOM kills",
    "stalls",
    "scanned by them",
    "scanned by kcompactd",
    "moved",
    "reports",
];

/// How a test ended in one kernel.
#[derive(Serialize, Default, Debug)]
struct Outcome {
    verdict: String,
    counts: [i64; COUNTS.len()],
    failed_parts: Vec<String>,
}

impl Outcome {
    fn new_parts<'a>(&'a self, there: Option<&'a Self>) -> impl Iterator<Item = &'a String> {
        let known = there.map_or(&[][..], |there| &there.failed_parts);
        self.failed_parts.iter().filter(|part| !known.contains(part))
    }

    fn fails(&self) -> bool {
        !["passed", "ended", "skipped"].contains(&self.verdict.as_str()) || self.counts[1] > 0
    }
}

/// By suite and test.
type Outcomes = BTreeMap<(String, String), Outcome>;

/// Takes what a guest has printed; `suffix` is added to the names of our own loads.
fn add(outcomes: &mut Outcomes, lines: &[String], suffix: &str) {
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let Some((&[what, suite, test, word], numbers)) = fields.split_first_chunk() else {
            continue;
        };
        let suffix = if suite == OURS { suffix } else { "" };
        let outcome = outcomes.entry((suite.to_owned(), format!("{test}{suffix}"))).or_default();
        if what == "part" {
            outcome.failed_parts.push(word.to_owned());
        } else if what == "foreign" {
            outcome.verdict = word.to_owned();
            for (count, number) in outcome.counts.iter_mut().zip(numbers) {
                *count = number.parse().unwrap_or(0);
            }
            // The kernel counts what kcompactd has scanned among all, too.
            outcome.counts[5] -= outcome.counts[6];
        }
    }
}

/// Which of two kernels a test ended better in.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Judged {
    WorseWithFreehold,
    FailsInBoth,
    BetterWithFreehold,
    Alike,
}

/// A test in both kernels.
#[derive(Serialize, Debug)]
struct Row {
    suite: String,
    test: String,
    judged: Judged,
    vanilla: Option<Outcome>,
    freehold: Option<Outcome>,
}

/// Whether the first ended worse. Of what our loads ask for one in forty may be missing.
fn is_worse(suite: &str, one: Option<&Outcome>, other: Option<&Outcome>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_some() };
    let some = if suite == OURS { (other.counts[0] + other.counts[1]) / 40 } else { 0 };
    let rank = |outcome: &Outcome| match outcome.verdict.as_str() {
        _ if suite == OURS => 0,
        "passed" | "ended" => 0,
        "skipped" => 1,
        _ => 2,
    };
    // Of more than that the guest tells the first.
    let has_all = one.failed_parts.len().max(other.failed_parts.len()) < 20;
    rank(one) > rank(other)
        || has_all && one.new_parts(Some(other)).next().is_some()
        || one.counts[0] < other.counts[0] - some
        || one.counts[1] > other.counts[1] + some
        || one.counts[3] > other.counts[3]
        || one.counts[8] > other.counts[8]
}

/// The worst first.
fn rows(mut vanilla: Outcomes, mut freehold: Outcomes) -> Vec<Row> {
    let mut names: Vec<_> = vanilla.keys().chain(freehold.keys()).cloned().collect();
    names.sort();
    names.dedup();
    let row = |name: (String, String)| {
        let (one, other) = (vanilla.remove(&name), freehold.remove(&name));
        let fails = |outcome: &Option<Outcome>| outcome.as_ref().is_none_or(Outcome::fails);
        let judged = if is_worse(&name.0, other.as_ref(), one.as_ref()) {
            Judged::WorseWithFreehold
        } else if is_worse(&name.0, one.as_ref(), other.as_ref()) {
            Judged::BetterWithFreehold
        } else if fails(&one) && fails(&other) {
            Judged::FailsInBoth
        } else {
            Judged::Alike
        };
        Row { suite: name.0, test: name.1, judged, vanilla: one, freehold: other }
    };
    let mut rows: Vec<Row> = names.into_iter().map(row).collect();
    rows.sort_by_key(|row| row.judged);
    rows
}

/// What fails in both is not held against Freehold. A runner of which nothing is well has compared
/// nothing: the kernel's, stress-ng, LTP. Our own loads say nothing of these.
fn judge(rows: &[Row], ended: End) -> End {
    let worse = rows.iter().any(|row| row.judged == Judged::WorseWithFreehold);
    let mut well = BTreeMap::new();
    for row in rows.iter().filter(|row| row.suite != OURS) {
        let runner = [STRESS, "ltp"].into_iter().find(|&own| row.suite == own);
        let is = row.vanilla.as_ref().is_some_and(|vanilla| vanilla.counts[0] > 0);
        *well.entry(runner).or_insert(false) |= is;
    }
    let compared = !well.is_empty() && well.values().all(|well| *well);
    if worse || !compared { super::worse(ended, End::Failed) } else { ended }
}

fn cell(outcome: Option<&Outcome>) -> String {
    let Some(outcome) = outcome else { return "nothing".to_owned() };
    let [well, failed, skipped, ..] = outcome.counts;
    let mut cell = format!("{} {well}/{failed}/{skipped}", outcome.verdict);
    let others = outcome.counts.iter().zip(COUNTS).skip(3).filter(|(count, _)| **count != 0);
    others.for_each(|(count, what)| _ = write!(cell, ", {count} {what}"));
    cell
}

/// A line for each test; below it, parts that fail with Freehold only.
fn table(rows: &[Row], not_built: &[String]) -> String {
    let mut text = format!("{}/{}/{}\n", COUNTS[0], COUNTS[1], COUNTS[2]);
    for (at, row) in rows.iter().enumerate() {
        if at == 0 || rows[at - 1].judged != row.judged {
            let count = rows.iter().filter(|other| other.judged == row.judged).count();
            let _ = writeln!(text, "\n{:?}: {count}", row.judged);
        }
        let name = format!("{}: {}", row.suite, row.test);
        let [vanilla, freehold] = [&row.vanilla, &row.freehold].map(|it| cell(it.as_ref()));
        let _ = if vanilla == freehold {
            writeln!(text, "{name:45} both {vanilla}")
        } else {
            writeln!(text, "{name:45} vanilla {vanilla}; Freehold {freehold}")
        };
        let parts = row.freehold.iter().flat_map(|it| it.new_parts(row.vanilla.as_ref()));
        parts.for_each(|part| _ = writeln!(text, "    fails with Freehold only: {part}"));
    }
    let _ = writeln!(text, "\nnot built: {}", not_built.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(lines: &[&str]) -> Outcomes {
        let lines: Vec<String> = lines.iter().map(|line| line.replace('|', "\t")).collect();
        let mut outcomes = Outcomes::new();
        add(&mut outcomes, &lines, ", CMA");
        outcomes
    }

    #[test]
    fn the_worst_row_is_first() {
        let rows = rows(
            outcomes(&[
                "foreign|cow|cow|passed|670|0|2",
                "foreign|thp|khugepaged|failed|3|1|0",
                "foreign|ours|ones|passed|400|0|0|0|30|100|90|5",
                "foreign|mmap|gone|passed|1|0|0",
                "noise",
            ]),
            outcomes(&[
                "foreign|thp|khugepaged|failed|3|1|0",
                "part|cow|cow|fork",
                "foreign|cow|cow|failed|669|1|2",
                "foreign|ours|ones|failed|391|9|0|0|1576|100|0|5",
            ]),
        );
        let told: Vec<_> = rows.iter().map(|row| (row.test.as_str(), row.judged)).collect();
        let wanted = [
            ("cow", Judged::WorseWithFreehold),
            ("gone", Judged::WorseWithFreehold),
            ("khugepaged", Judged::FailsInBoth),
            // Nine of four hundred are fewer than one in forty.
            ("ones, CMA", Judged::Alike),
        ];
        assert_eq!(told, wanted);
        let text = table(&rows, &["this".to_owned()]);
        assert!(text.contains("fails with Freehold only: fork"), "{text}");
        assert!(text.contains("30 stalls, 10 scanned by them, 90 scanned by kcompactd"), "{text}");
    }

    #[test]
    fn where_nothing_is_well_nothing_has_passed() {
        let both = |line: &str| rows(outcomes(&[line]), outcomes(&[line]));
        assert_eq!(judge(&[], End::Passed), End::Failed);
        assert_eq!(judge(&both("foreign|thp|all|ran nothing|0|0|0"), End::Passed), End::Failed);
        let mut others = both("foreign|thp|all|ran nothing|0|0|0");
        others.extend(both("foreign|ours|ones|passed|400|0|0"));
        assert_eq!(judge(&others, End::Passed), End::Failed);
        others.extend(both("foreign|stress-ng|vm|passed|200|0|0"));
        assert_eq!(judge(&others, End::Passed), End::Failed);
        let one_is_well = both("foreign|thp|all|failed|3|1|0");
        assert_eq!(judge(&one_is_well, End::Passed), End::Passed);
        assert_eq!(judge(&one_is_well, End::TimedOut), End::TimedOut);
    }

    /// Ahead of everything that takes minutes.
    #[test]
    fn what_it_would_not_do_is_refused() {
        let refused = |words: &str| {
            let args = crate::linux::parsed(&format!("--foreign {words}"))?;
            run(&args, &[], Path::new("/nowhere")).map_err(|trouble| trouble.to_string())
        };
        assert!(refused("--cpus 2,4").unwrap_err().contains("one number of --cpus"));
        assert!(refused("--checks kasan,kcsan").unwrap_err().contains("one of them"));
        assert!(refused("--boots 5").unwrap_err().contains("cannot be used with"));
    }

    /// The guest's own functions, with files of ours.
    #[test]
    fn settings_are_what_they_were_after_a_category() {
        let script = fs::read_to_string(build::root().join("os/linux/built/foreign")).unwrap();
        let (_, rest) = script.split_once("settings_of() {\n").unwrap();
        let (functions, _) = rest.split_once("\nsettings_of ").unwrap();
        let try_it = format!(
            "cd $(mktemp -d) && echo 'always [madvise] never' > words && echo 3 > number
            settings_of() {{\n{functions}
            settings_of words number none > kept; echo x > words; echo 9 > number
            restore < kept; cat words number; rm -r $PWD"
        );
        let told = Command::new("sh").args(["-c", &try_it]).output().unwrap();
        assert_eq!(String::from_utf8(told.stdout).unwrap(), "madvise\n3\n");
        assert!(script.contains("done\n    restore < /tmp/settings\n}"));
    }

    #[test]
    fn all_categories_and_programs_have_two_minutes_each() {
        let ltp: Files = (0..114).map(|at| (format!("ltp/mmap{at}"), PathBuf::new())).collect();
        let (limit, each) = limits(None, "stress-ng,ltp", &ltp).unwrap();
        assert!(each == 120 && limit > 3 * each * 114);
        assert_eq!(limits(Some(600), "cow", &ltp).unwrap(), (600, 200));
    }

    #[test]
    fn what_was_not_built_is_read() {
        let said = "cow.c:1: error\nmake: *** [../lib.mk:222: /x/foreign/memfd_secret] Error 1\n\
                    make: Target 'all' not remade because of errors.\n";
        assert_eq!(not_built(said), ["memfd_secret"]);
    }
}
