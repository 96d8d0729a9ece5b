//! What `--list` prints: what can be measured, and of what.

use std::fmt::Write as _;

use serde::Serialize;

use super::engines::{FREEHOLD, Peer};
use super::kind::Kind;
use super::metric::About;
use crate::tables::table::{Style, wrap};

/// A benchmark as `--list --json` has it.
#[derive(Serialize)]
pub struct Entry {
    name: &'static str,
    #[serde(flatten)]
    about: &'static About,
}

pub fn entries(kinds: &[Kind]) -> Vec<Entry> {
    kinds.iter().map(|kind| Entry { name: kind.name(), about: kind.about() }).collect()
}

pub fn catalogue(kinds: &[Kind], style: Style) -> String {
    let mut text = String::new();
    for kind in kinds {
        let about = kind.about();
        let threads = match (about.threads, about.fewest_threads) {
            (1, _) => "1 thread".to_owned(),
            (most, fewest) if fewest < most => {
                format!("{most} threads, or as many as there are CPUs")
            }
            (most, _) => format!("{most} threads"),
        };
        let _ = writeln!(text, "{} ({threads})", kind.name().to_uppercase());
        let source = format!("Source: {}.", about.source);
        for line in [about.what, &source] {
            let _ = writeln!(text, "  {}", wrap(line, style, "  "));
        }
        let width = about.metrics.iter().map(|metric| metric.name.len()).max().unwrap_or(0);
        for metric in about.metrics {
            text.push_str(&named(metric.name, metric.what, width, 4, style));
        }
        text.push('\n');
    }
    text.push_str(&wrap(
        "Timed loops touch no memory of frames but in arena. Before the first run every engine is \
         warmed up; one that loses a frame is an error.",
        style,
        "",
    ));
    text.push_str("\n\n");
    text.push_str(&engines(style));
    text
}

/// A name in so many columns and what it is, beside it where there is room for a few words.
fn named(name: &str, what: &str, width: usize, indent: usize, style: Style) -> String {
    let (first, behind) = (" ".repeat(indent), width + indent + 2);
    if behind + 30 > usize::from(style.width) {
        let indent = format!("{first}    ");
        return format!("{first}{name}\n{indent}{}\n", wrap(what, style, &indent));
    }
    format!("{first}{name:width$}  {}\n", wrap(what, style, &" ".repeat(behind)))
}

/// What can be named after `--engine`.
fn engines(style: Style) -> String {
    let ours = (
        FREEHOLD,
        "this project's: CPUs lease words of 64 frames, and frees go home without a lock"
            .to_owned(),
    );
    let peers = Peer::ALL.map(|peer| {
        let missing = peer
            .missing()
            .map_or_else(String::new, |name| format!(" (needs a build with --features {name})"));
        (peer.name(), format!("{}{missing}", peer.about().summary))
    });
    let designs = (
        "KERNEL[,±SWITCH]...",
        "a design of the kernel's, such as 5.17, vanilla (7.3) or pcp-buddy-fixed,-merge: \
        'freehold engines' lists designs and switches"
            .to_owned(),
    );
    let engines: Vec<_> = std::iter::once(ours).chain(peers).chain([designs]).collect();
    let width = engines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = "ENGINES\n".to_owned();
    for (name, what) in engines {
        text.push_str(&named(name, &what, width, 2, style));
    }
    text
}
