//! The page: a frame of HTML with the style, the scripts and the data put in.

use crate::tables::series;

use super::embed;

const FRAME: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/style.css");

/// In the order in which they need each other.
const SCRIPTS: [&str; 20] = [
    include_str!("assets/dom.js"),
    include_str!("assets/format.js"),
    include_str!("assets/state.js"),
    include_str!("assets/palette.js"),
    include_str!("assets/tabs.js"),
    include_str!("assets/table.js"),
    include_str!("assets/bars.js"),
    include_str!("assets/axis.js"),
    include_str!("assets/chart.js"),
    include_str!("assets/distribution.js"),
    include_str!("assets/heat.js"),
    include_str!("assets/memory_map.js"),
    include_str!("assets/memory.js"),
    include_str!("assets/orders.js"),
    include_str!("assets/replay.js"),
    include_str!("assets/bench.js"),
    include_str!("assets/fragmentation.js"),
    include_str!("assets/simulate.js"),
    include_str!("assets/paper.js"),
    include_str!("assets/main.js"),
];

/// Puts a page together. `data` can stand in a script element as it is.
pub(super) fn assemble(title: &str, data: &str) -> String {
    let title = embed::text(title);
    let scripts = engines_script() + &SCRIPTS.concat();
    let parts = [
        ("{{title}}", title.as_str()),
        ("{{style}}", STYLE),
        ("{{data}}", data),
        ("{{script}}", &scripts),
    ];
    let mut html = String::with_capacity(FRAME.len() + STYLE.len() + data.len() + scripts.len());
    let mut rest = FRAME;
    // One after the other, so that a marker inside what is put in stays what it is.
    for (marker, content) in parts {
        let Some((before, after)) = rest.split_once(marker) else { continue };
        html.push_str(before);
        html.push_str(content);
        rest = after;
    }
    html.push_str(rest);
    html
}

/// Which engine has which place among the series: what the terminal and the pictures go by.
fn engines_script() -> String {
    let own: Vec<String> =
        series::OWN.iter().map(|(name, place)| format!("{name:?}: {place}")).collect();
    format!(
        "const OWN_SERIES = {{ {} }};\nconst KERNEL_SERIES = {};\n",
        own.join(", "),
        series::KERNEL
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_the_terminal_and_the_pictures() {
        let (light, dark) = STYLE.split_once("data-theme=\"dark\"").expect("a dark page");
        for (place, look) in series::LOOKS.iter().enumerate() {
            for (style, colour) in [(light, look.light), (dark, look.dark)] {
                assert!(style.contains(&format!("--series-{place}: {colour};")), "{place}");
            }
        }
    }

    #[test]
    fn every_marker_is_replaced_and_what_is_put_in_is_left_alone() {
        let html = assemble("a {{script}} <b>", "{\"x\":\"{{style}}\"}");
        assert!(html.contains("<title>a {{script}} &lt;b&gt;</title>"), "{}", &html[..400]);
        assert!(html.contains("{\"x\":\"{{style}}\"}"));
        assert_eq!(html.matches("{{").count(), 2, "no marker of the frame is left");
    }

    #[test]
    fn nothing_is_fetched() {
        let html = assemble("t", "{}");
        for address in ["http://", "https://", "src=", "@import", "url("] {
            // Names of XML's dialects look like addresses and are none.
            let found = html.replace("http://www.w3.org/2000/svg", "").contains(address);
            assert!(!found, "{address}");
        }
    }

    #[test]
    fn scripts_do_not_end_their_element() {
        assert!(!SCRIPTS.concat().to_lowercase().contains("</script"));
        assert!(!STYLE.to_lowercase().contains("</style"));
    }
}
