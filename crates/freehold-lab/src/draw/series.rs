//! The colour and the mark of each engine: one table for the terminal, SVG and HTML.
//!
//! ```text
//!  0 ● vanilla    1 ■ a kernel, X.Y    2 ▲ pcp-buddy    3 ◆ pcp-buddy-fixed    4 ▼ freehold
//!  5 ✚  6 ⧓  7 ⬟  and whatever of 0 to 4 nobody is: all others, in the order in which they come
//! ```
//!
//! An engine that is shown twice, once with a switch, keeps its place for the one without. Nothing
//! is told by colour alone: marks have eight shapes. The first five colours are those of Okabe and
//! Ito (2008) made dark enough to stand out by 3 to 1 from a white page, or light enough from a
//! black one.
//!
//! This file depends on nothing: the repository's own tools include it.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    /// Its mark on a terminal.
    pub(crate) glyph: char,
    /// The mark as an SVG path around 0, 0, some 6 wide to each side.
    pub(crate) path: &'static str,
    /// Its colour on a white page.
    pub(crate) light: &'static str,
    /// On a black one.
    pub(crate) dark: &'static str,
    /// On a terminal: the number of xterm's 256 colours, for either ground.
    pub(crate) ansi: u8,
}

const fn look(
    glyph: char,
    path: &'static str,
    light: &'static str,
    dark: &'static str,
    ansi: u8,
) -> Look {
    Look { glyph, path, light, dark, ansi }
}

/// By place.
pub(crate) const LOOKS: [Look; 8] = [
    look('●', "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z", "#4a525c", "#c7d0d9", 245),
    look('■', "M-4.5-4.5h9v9h-9z", "#c25400", "#ff9b45", 208),
    look('▲', "M0-6l5.5 10h-11z", "#0072b2", "#58adf5", 33),
    look('◆', "M0-6l6 6l-6 6l-6-6z", "#a8478a", "#e79bcd", 169),
    look('▼', "M-6-4h12l-6 10z", "#007d5c", "#35cf9f", 36),
    look('✚', "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z", "#2b8bc4", "#a5e0ff", 75),
    look('⧓', "M-6-5l6 5l-6 5zM6-5l-6 5l6 5z", "#8a6d00", "#e8d44d", 178),
    look('⬟', "M0-6l6 4.5l-2 7h-8l-2-7z", "#b3261e", "#ff867c", 203),
];

/// The places that are an engine's own, but for kernels by their version.
pub(crate) const OWN: [(&str, usize); 4] =
    [("vanilla", 0), ("pcp-buddy", 2), ("pcp-buddy-fixed", 3), ("freehold", 4)];
/// The place of a kernel by its version.
pub(crate) const KERNEL: usize = 1;

/// The place in [`LOOKS`] of each of these engines, all different as long as there are places.
pub(crate) fn places(engines: &[&str]) -> Vec<usize> {
    let mut taken = [false; LOOKS.len()];
    let mut own: Vec<Option<usize>> = engines
        .iter()
        .map(|engine| {
            let place = own_place(engine)?;
            (!std::mem::replace(&mut taken[place], true)).then_some(place)
        })
        .collect();
    // From the last on, which are nobody's own.
    let mut free = (5..LOOKS.len()).chain(0..5).filter(|&place| !taken[place]).collect::<Vec<_>>();
    free.reverse();
    for (at, place) in own.iter_mut().enumerate() {
        *place = place.or_else(|| free.pop()).or(Some(at % LOOKS.len()));
    }
    own.into_iter().flatten().collect()
}

fn own_place(engine: &str) -> Option<usize> {
    let named = OWN.iter().find(|(name, _)| *name == engine).map(|(_, place)| *place);
    let is_version = || engine.split('.').count() == 2 && engine.split('.').all(is_number);
    named.or_else(|| is_version().then_some(KERNEL))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_looks_the_same_whoever_stands_beside_it() {
        assert_eq!(places(&["freehold"]), [4]);
        assert_eq!(
            places(&["6.18", "vanilla", "pcp-buddy", "pcp-buddy-fixed", "freehold"]),
            [1, 0, 2, 3, 4]
        );
        assert_eq!(places(&["pcp-buddy,-merge", "pcp-buddy", "5.17", "6.1"]), [5, 2, 1, 6]);
    }

    #[test]
    fn no_two_look_the_same_while_there_are_places() {
        let engines: Vec<String> = (0..8).map(|n| format!("other{n}")).collect();
        let mut found = places(&engines.iter().map(String::as_str).collect::<Vec<_>>());
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(places(&["a"; 20]).len(), 20);
    }
}
