//! What more of a figure means, and the colour that says so.

use serde::Serialize;

use super::grid::Color;

/// What more of a figure means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    More,
    Less,
    /// Neither: it says how it was measured.
    Neither,
}

impl Better {
    /// Which way is better, in a word; empty where neither is.
    pub const fn word(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Less => "less",
            Self::Neither => "",
        }
    }

    /// Of a figure that is less, or more, than what it is compared with: green is better, red
    /// worse.
    pub fn color(self, less: bool) -> Option<Color> {
        match (self, less) {
            (Self::Neither, _) => None,
            (Self::Less, true) | (Self::More, false) => Some(Color::Green),
            (Self::Less, false) | (Self::More, true) => Some(Color::Red),
        }
    }
}
