//! The figures as one page of HTML: tables with bars of CSS, no script, nothing from elsewhere.

use std::fmt::Write as _;

use freehold_trace::machine::{Look, LookZone};

use super::{ABOVE, Named, share};
use freehold_labkit::report::number::memory_of;
use freehold_labkit::report::thousands;

const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;\
color:#222;background:#fff}table{border-collapse:collapse;margin:.6em 0 1.6em}th,td{padding:.15em .8em;text-align:right}\
th{border-bottom:1px solid #999}.bar{display:inline-block;width:12em;height:.8em;background:#ddd;vertical-align:middle}\
.bar i{display:block;height:100%;background:#36c}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}\
.bar{background:#444}.bar i{background:#7af}}";

/// One or two machines.
pub(crate) fn render(machines: &[&Named]) -> String {
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Memory of {}</title>\
         <style>{STYLE}</style></head><body>\n",
        escaped(&machines.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(" and "))
    );
    for named in machines {
        machine(&mut text, named);
    }
    text.push_str("</body></html>\n");
    text
}

fn machine(text: &mut String, named: &Named) {
    let look = &named.look;
    let memory = |pages| memory_of(pages, look.page_size);
    let _ = write!(
        text,
        "<h1>{}</h1>\n<p>{} of {} free, {} more on the CPUs' lists. Pages of {} KiB, orders 0 to {}, \
         pageblocks of order {}.</p>\n",
        escaped(&named.name),
        memory(look.total.free),
        memory(look.total.managed),
        memory(look.total.held),
        look.page_size >> 10,
        look.max_order,
        look.pageblock_order,
    );
    for of in &look.zones {
        zone(text, look, of);
    }
}

fn zone(text: &mut String, look: &Look, zone: &LookZone) {
    let memory = |pages| memory_of(pages, look.page_size);
    let free = share(zone.free, zone.managed);
    let [min, low, high] = zone.watermarks.map(memory);
    let _ = write!(
        text,
        "<h2>Node {} zone {}</h2>\n<p>{} {:.1}% of {} free, {} (min {min}, low {low}, high {high}). {} CPUs' \
         lists hold {}. CMA {}.",
        zone.node,
        escaped(&zone.zone),
        bar(free),
        free * 100.0,
        memory(zone.managed),
        ABOVE[usize::from(zone.above.min(3))],
        zone.cpus,
        memory(zone.held),
        zone.cma.map_or_else(|| "not known".to_owned(), memory),
    );
    if let (Some(blocks), Some(whole)) = (zone.blocks, zone.whole_free_blocks) {
        let mixed = zone.mixed_blocks.map_or("not known".to_owned(), thousands);
        let (blocks, whole) = (thousands(blocks), thousands(whole));
        let _ = write!(text, " {blocks} pageblocks: {whole} wholly free, mixed {mixed}.");
    }
    text.push_str("</p>\n");
    if !zone.orders.is_empty() {
        text.push_str(
            "<table><tr><th>order</th><th>chunk</th><th>chunks</th><th>free</th><th>share of free</th>\
             <th>unusable index</th></tr>\n",
        );
        for of in &zone.orders {
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} {:.3}</td></tr>",
                of.order,
                memory_of(1 << of.order, look.page_size),
                thousands(of.chunks),
                memory(of.pages),
                bar(share(of.pages, zone.free)),
                bar(of.unusable_index),
                of.unusable_index,
            );
        }
        text.push_str("</table>\n");
    }
    if !zone.types.is_empty() {
        text.push_str(
            "<table><tr><th>type</th><th>blocks</th><th>share of blocks</th><th>free</th><th>share of \
             free</th></tr>\n",
        );
        for of in &zone.types {
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                of.name,
                thousands(of.blocks),
                bar(share(of.blocks, zone.blocks.unwrap_or(0))),
                memory(of.free),
                bar(share(of.free, zone.free)),
            );
        }
        text.push_str("</table>\n");
    }
}

fn bar(share: f64) -> String {
    let percent = share.clamp(0.0, 1.0) * 100.0;
    format!("<span class=\"bar\"><i style=\"width:{percent:.1}%\"></i></span>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;

    #[test]
    fn the_page_is_whole_and_names_are_text() {
        let mut odd = machine();
        odd.look.zones[0].zone = "<script>".to_owned();
        let text = render(&[&machine(), &odd]);
        assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</body></html>\n"));
        assert!(text.contains("a &quot;machine&quot;") && text.contains("zone &lt;script&gt;"));
        assert!(!text.contains("<script") && !text.contains("http"));
        for tag in ["table", "tr", "td", "p", "h1", "h2", "span"] {
            let count = |text: &str, what: &str| text.matches(what).count();
            let open = count(&text, &format!("<{tag}>")) + count(&text, &format!("<{tag} "));
            assert_eq!(open, count(&text, &format!("</{tag}>")), "{tag}");
        }
    }
}
