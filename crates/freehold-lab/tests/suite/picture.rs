//! The picture: that it is XML, that it says what the JSON says, and that no label lies on another.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Text as tracefs prints it.
const TEXT: &str = "\
# tracer: nop
#
            make-101     [000] .....   100.000001: mm_page_alloc: page=0x1 pfn=0x1000 order=0 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE
            make-101     [001] .....   100.000003: mm_page_free: page=0x1 pfn=0x1000 order=0
            make-101     [001] .....   100.000004: mm_page_alloc: page=0x3 pfn=0x2000 order=3 migratetype=0 gfp_flags=GFP_KERNEL
            make-101     [000] .....   100.000009: mm_page_free: page=0x3 pfn=0x2000 order=3
";

fn freehold() -> Command {
    Command::new(env!("CARGO_BIN_EXE_freehold"))
}

/// A label, in pixels.
#[derive(Debug)]
struct Label {
    text: String,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// What is in a picture.
#[derive(Debug, Default)]
struct Picture {
    size: (f64, f64),
    title: String,
    description: String,
    labels: Vec<Label>,
    /// Lines of more than two points.
    curves: usize,
}

fn attribute(element: &BytesStart<'_>, name: &str) -> String {
    let found = element
        .try_get_attribute(name)
        .expect("valid attributes")
        .unwrap_or_else(|| panic!("no {name}"));
    found.unescape_value().expect("valid text").into_owned()
}

fn number(element: &BytesStart<'_>, name: &str) -> f64 {
    attribute(element, name).parse().unwrap_or_else(|_| panic!("{name} is a number"))
}

/// Parses a picture to its end; everything that is not well-formed is a failure.
fn parse(svg: &str) -> Picture {
    let legal = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    assert!(svg.chars().all(legal), "characters that XML does not have");
    let mut reader = Reader::from_str(svg);
    let mut picture = Picture::default();
    let mut open: Vec<BytesStart<'_>> = Vec::new();
    let mut text = String::new();
    loop {
        match reader.read_event().expect("well-formed XML") {
            Event::Start(element) => {
                text.clear();
                if open.is_empty() {
                    assert_eq!(element.name().as_ref(), b"svg");
                    picture.size = (number(&element, "width"), number(&element, "height"));
                }
                open.push(element);
            }
            Event::Empty(element) => {
                let curve = element.name().as_ref() == b"polyline"
                    && attribute(&element, "points").split(' ').count() > 3;
                picture.curves += usize::from(curve);
            }
            Event::Text(more) => text.push_str(&more.decode().expect("UTF-8")),
            Event::GeneralRef(more) => {
                text.push_str(match more.decode().expect("UTF-8").as_ref() {
                    "lt" => "<",
                    "gt" => ">",
                    "amp" => "&",
                    "quot" => "\"",
                    "apos" => "'",
                    other => panic!("entity {other}"),
                })
            }
            Event::End(_) => {
                let element = open.pop().expect("an element that was opened");
                let text = std::mem::take(&mut text).trim().to_owned();
                match element.name().as_ref() {
                    b"title" => picture.title = text,
                    b"desc" => picture.description = text,
                    b"text" => picture.labels.push(label(&element, text)),
                    _ => {}
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert!(open.is_empty(), "elements left open");
    picture
}

/// Units of the drawing in a pixel.
const UNITS: f64 = 10.0;

fn label(element: &BytesStart<'_>, text: String) -> Label {
    let size = number(element, "font-size") / UNITS;
    assert!(size >= 11.9, "{text}: {size} px is too small to read");
    assert_eq!(attribute(element, "dy"), "0.76em");
    let (x, base) = (number(element, "x") / UNITS, number(element, "y") / UNITS + 0.76 * size);
    // Measured with DejaVu Sans, one of the wider fonts: names take 0.58 em a character, numbers
    // 0.63.
    let wide = text.chars().count() as f64 * size * 0.6;
    let left = match attribute(element, "text-anchor").as_str() {
        "start" => x,
        "middle" => x - wide / 2.0,
        _ => x - wide,
    };
    Label { text, left, right: left + wide, top: base - 0.75 * size, bottom: base + 0.2 * size }
}

fn assert_nothing_overlaps(picture: &Picture) {
    for (i, a) in picture.labels.iter().enumerate() {
        let (wide, high) = picture.size;
        assert!(
            a.left >= 0.0 && a.right <= wide && a.top >= 0.0 && a.bottom <= high,
            "outside: {a:?}"
        );
        for b in &picture.labels[i + 1..] {
            let apart =
                a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
            assert!(apart, "one on the other: {a:?} and {b:?}");
        }
    }
}

/// Replays with `arguments` and parses the picture.
fn drawn(arguments: &[&str], traces: &[PathBuf]) -> (Picture, serde_json::Value) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("comparison.svg");
    let mut command = freehold();
    let done = command
        .args(["replay", "--json", "--picture"])
        .arg(&path)
        .args(arguments)
        .args(traces)
        .assert()
        .code(0);
    let document = serde_json::from_slice(&done.get_output().stdout).expect("valid JSON");
    (parse(&fs::read_to_string(path).expect("it was written, in UTF-8")), document)
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file in a temporary folder");
    path
}

#[test]
fn the_picture_of_the_sample_says_what_the_json_says() {
    let (picture, document) = drawn(&[], &[]);
    assert_eq!(picture.size.0, 800.0);
    assert_eq!(picture.title, "page-cache-churn (built-in sample): 230,000 events on 2 CPUs");
    let labels: Vec<&str> = picture.labels.iter().map(|label| label.text.as_str()).collect();
    assert_eq!(labels[0], picture.title);
    let engines = document["engines"].as_array().expect("an array");
    assert_eq!(engines.len(), freehold_lab::engines::DEFAULT.len());
    for engine in engines {
        let name = engine["engine"].as_str().expect("a name");
        // Beside its bars and in the legend.
        assert_eq!(labels.iter().filter(|&&label| label == name).count(), 2, "{name}");
        assert!(picture.description.contains(&format!("{name}:")));
        let hold = freehold_lab::report::thousands(
            engine["zone_lock_work_max"].as_u64().expect("a count"),
        );
        assert!(labels.contains(&hold.as_str()), "{hold} in {labels:?}");
        let events = document["replayed_events"].as_f64().expect("a number");
        let taken = engine["zone_lock_acquisitions"].as_f64().expect("a number") * 1000.0 / events;
        // Small numbers are written with more places.
        let written = [format!("{taken:.1}"), format!("{taken:.3}")];
        assert!(
            written.iter().any(|number| labels.contains(&number.as_str())),
            "{taken} in {labels:?}"
        );
    }
    // A curve for each.
    assert_eq!(picture.curves, engines.len());
    assert_nothing_overlaps(&picture);
}

#[test]
fn labels_keep_apart_with_one_engine_to_ten_and_long_names() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace =
        written(folder.path(), &format!("{}.txt", "a-long-name-of-a-recording".repeat(6)), TEXT);
    let names = [
        "pcp-buddy-fixed",
        "vanilla",
        "pcp-buddy-fixed,-merge,-whole-first,-fragment-tail,-merge-once,-recover,-cma-phases,-foreign-claim,-owned-by-type",
        "5.17",
        "pcp-buddy-fixed,-merge",
        "vanilla,-contig-free",
        "7.1",
        "pcp-buddy",
        "6.18",
        "5.18",
    ];
    for count in 1..=names.len() {
        let arguments: Vec<&str> = names[..count].iter().flat_map(|name| ["-e", name]).collect();
        let (picture, _) = drawn(&arguments, std::slice::from_ref(&trace));
        assert_nothing_overlaps(&picture);
        let all: String = picture.labels.iter().map(|label| label.text.as_str()).collect();
        for name in &names[..count] {
            assert!(picture.description.contains(&format!("{name}:")), "{name}");
            assert!(all.contains(name), "{name}, broken or not, in {all}");
        }
    }
}

#[test]
fn failures_are_written_beside_the_engine() {
    let (picture, document) = drawn(&["-e", "5.17", "-e", "vanilla", "--memory", "16M"], &[]);
    for engine in document["engines"].as_array().expect("an array") {
        let failures = freehold_lab::report::thousands(engine["failed"].as_u64().expect("a count"));
        let expected = format!("{failures} failures");
        assert!(picture.labels.iter().any(|label| label.text == expected), "{expected}");
    }
    assert_nothing_overlaps(&picture);
}

#[test]
#[cfg(unix)]
fn names_may_hold_anything_a_file_name_may() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = written(folder.path(), "a<b> & \"c\" 'd'\u{1}\u{1b}\n.txt", TEXT);
    let (picture, _) = drawn(&["-e", "vanilla"], &[trace]);
    assert!(picture.title.starts_with("a<b> & \"c\" 'd'\u{fffd}\u{fffd}"), "{}", picture.title);
}

#[test]
fn a_trace_of_one_event_has_a_picture_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text: String = TEXT.split_inclusive('\n').take(3).collect();
    let (picture, _) = drawn(&["-e", "vanilla"], &[written(folder.path(), "one.txt", &text)]);
    assert_eq!(picture.title, "one: 1 event on 1 CPU");
    assert_nothing_overlaps(&picture);
}

#[test]
fn each_of_several_traces_has_a_picture() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let traces = ["make.txt", "redis.txt"].map(|name| written(folder.path(), name, TEXT));
    let path = folder.path().join("p.svg");
    freehold()
        .args(["replay", "-e", "vanilla", "--picture"])
        .arg(&path)
        .args(&traces)
        .assert()
        .code(0);
    assert!(!path.exists());
    for name in ["make", "redis"] {
        let text = fs::read_to_string(folder.path().join(format!("p-{name}.svg")))
            .expect("it was written");
        assert!(parse(&text).title.starts_with(name));
    }
}

#[test]
fn a_picture_replaces_a_longer_one_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = written(folder.path(), "p.svg", &"<!-- older -->".repeat(10_000));
    freehold().args(["replay", "-e", "vanilla", "--picture"]).arg(&path).assert().code(0);
    let text = fs::read_to_string(&path).expect("it was written");
    assert!(!text.contains("older"));
    parse(&text);
}
