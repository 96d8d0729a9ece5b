//! The figures in Prometheus's text format, as node_exporter's textfile collector reads it. Amounts
//! of memory are bytes; a figure that is not known has no sample.

use std::fmt::Write as _;

use freehold_trace::machine::LookZone;

use super::Named;

/// The text of one machine.
pub(crate) fn render(named: &Named) -> String {
    let look = &named.look;
    let mut text = String::new();
    head(&mut text, "page_size_bytes", "Bytes of a page.");
    let _ = writeln!(text, "freehold_page_size_bytes {}", look.page_size);
    head(&mut text, "pageblock_order", "The order of a pageblock.");
    let _ = writeln!(text, "freehold_pageblock_order {}", look.pageblock_order);
    let bytes = |pages: u64| pages.saturating_mul(look.page_size);
    type Of<'a> = &'a dyn Fn(&LookZone) -> Option<u64>;
    let of_zone: [(&str, &str, Of<'_>); 10] = [
        ("managed_bytes", "Memory that the page allocator manages.", &|z| z.managed.map(bytes)),
        ("free_bytes", "Free in the zone.", &|z| Some(bytes(z.free))),
        ("pcp_bytes", "Free on the CPUs' lists.", &|z| z.held.map(bytes)),
        ("pcp_high_bytes", "What the CPUs' lists may hold.", &|z| z.held_high.map(bytes)),
        ("cma_bytes", "In CMA pageblocks.", &|z| z.cma.map(bytes)),
        ("cma_free_bytes", "Free in CMA pageblocks.", &|z| z.cma_free.map(bytes)),
        ("watermarks_above", "Watermarks that free memory is above, 0 to 3.", &|z| {
            z.above.map(u64::from)
        }),
        ("pageblocks", "Pageblocks.", &|z| z.blocks),
        ("whole_free_pageblocks", "Pageblocks that are wholly free.", &|z| z.whole_free_blocks),
        ("mixed_pageblocks", "Pageblocks with allocations of another type.", &|z| z.mixed_blocks),
    ];
    for (name, help, of) in of_zone {
        let mut samples = look.zones.iter().filter_map(|z| Some((z, of(z)?))).peekable();
        if samples.peek().is_some() {
            head(&mut text, name, help);
        }
        for (zone, value) in samples {
            let _ = writeln!(text, "freehold_{name}{{{}}} {value}", labels(zone));
        }
    }
    head(&mut text, "watermark_bytes", "The watermarks, raised by boost.");
    for zone in &look.zones {
        let marks = zone.watermarks.into_iter().flatten();
        for (mark, pages) in ["min", "low", "high"].iter().zip(marks) {
            let labels = labels(zone);
            let _ = writeln!(
                text,
                "freehold_watermark_bytes{{{labels},mark=\"{mark}\"}} {}",
                bytes(pages)
            );
        }
    }
    by_order(&mut text, named);
    by_type(&mut text, named);
    for (name, value) in named.pressure.iter().flatten() {
        let is_psi = name.starts_with("memory_");
        let (name, help) = match is_psi {
            true => (format!("{name}_percent"), "PSI of memory over 10 s."),
            false => (format!("{name}_per_second"), "Since the look before, out of vmstat."),
        };
        head(&mut text, &name, help);
        let _ = writeln!(text, "freehold_{name} {value}");
    }
    text
}

fn by_order(text: &mut String, named: &Named) {
    let orders = || named.look.zones.iter().flat_map(|z| z.orders.iter().map(move |of| (z, of)));
    if orders().next().is_none() {
        return;
    }
    head(text, "free_chunks", "Free chunks by order.");
    for (zone, of) in orders() {
        let (labels, order) = (labels(zone), of.order);
        let _ = writeln!(text, "freehold_free_chunks{{{labels},order=\"{order}\"}} {}", of.chunks);
    }
    head(text, "unusable_index", "The share of free memory in chunks below an order, 0 to 1.");
    for (zone, of) in orders() {
        let (labels, order) = (labels(zone), of.order);
        let index = of.unusable_index;
        let _ = writeln!(text, "freehold_unusable_index{{{labels},order=\"{order}\"}} {index}");
    }
}

fn by_type(text: &mut String, named: &Named) {
    let types = || named.look.zones.iter().flat_map(|z| z.types.iter().map(move |of| (z, of)));
    if types().next().is_none() {
        return;
    }
    head(text, "type_pageblocks", "Pageblocks by migratetype.");
    for (zone, of) in types() {
        let (labels, name) = (labels(zone), of.name);
        let _ =
            writeln!(text, "freehold_type_pageblocks{{{labels},type=\"{name}\"}} {}", of.blocks);
    }
    head(
        text,
        "type_free_chunks",
        "Free chunks by migratetype and order; the kernel stops at 100000.",
    );
    for (zone, of) in types() {
        for (order, chunks) in of.chunks.iter().enumerate() {
            let (labels, name) = (labels(zone), of.name);
            let _ = writeln!(
                text,
                "freehold_type_free_chunks{{{labels},type=\"{name}\",order=\"{order}\"}} {chunks}"
            );
        }
    }
}

fn head(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "# HELP freehold_{name} {help}\n# TYPE freehold_{name} gauge");
}

/// A zone's name stands in a file and may hold anything.
fn labels(zone: &LookZone) -> String {
    let name = zone.zone.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("node=\"{}\",zone=\"{name}\"", zone.node)
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;

    #[test]
    fn every_line_is_a_comment_or_a_sample_and_every_metric_is_announced_once() {
        let text = render(&machine());
        let mut announced = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let name = rest.strip_suffix(" gauge").expect(line);
                assert!(!announced.contains(&name), "{name} twice");
                announced.push(name);
            } else if !line.starts_with("# HELP ") {
                let (series, value) = line.rsplit_once(' ').expect(line);
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert_eq!(series.split('{').next(), announced.last().copied(), "{line}");
            }
        }
        for (figure, more) in [
            ("free_bytes", "} 16777216\n"),
            ("unusable_index", ",order=\"10\"} 0.5\n"),
            ("type_pageblocks", ",type=\"CMA\"} 4\n"),
        ] {
            let line = format!("freehold_{figure}{{node=\"0\",zone=\"Normal\"{more}");
            assert!(text.contains(&line), "{line}");
        }
        assert!(!text.contains("mixed_pageblocks"), "not known is no sample");
        let mut odd = machine();
        odd.look.page_size = 65536;
        for figure in ["free", "managed", "pcp", "cma", "cma_free"] {
            let of = |text: &str| -> u64 {
                let start = format!("freehold_{figure}_bytes{{node=\"0\",zone=\"Normal\"}} ");
                let found = text.lines().find_map(|line| line.strip_prefix(&start));
                found.expect(figure).parse().unwrap()
            };
            assert_eq!(of(&render(&odd)), 16 * of(&text), "{figure}: pages of 64 KiB");
        }
        odd.look.zones[0].zone = "a\"b\\".to_owned();
        assert!(render(&odd).contains("zone=\"a\\\"b\\\\\""));
    }

    /// An alert or a panel of a figure that nothing writes would stay silent.
    #[test]
    fn alerts_and_the_dashboard_are_of_figures_that_are_written() {
        let mut all = machine();
        all.look.zones[0].mixed_blocks = Some(1);
        let rates = crate::look::pressure::RATES.map(|(name, _)| (name, 1.0));
        all.pressure = Some([("memory_some", 1.0), ("memory_full", 1.0)].into());
        all.pressure.iter_mut().for_each(|pressure| pressure.extend(rates));
        let written = render(&all);
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for (name, least) in [("alerts.yml", 5), ("alerts.test.yml", 5), ("dashboard.json", 20)] {
            let text = std::fs::read_to_string(docs.join(name)).unwrap();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let mut figures: Vec<&str> =
                words.filter(|word| word.starts_with("freehold_")).collect();
            figures.sort_unstable();
            figures.dedup();
            for figure in &figures {
                let is_written = written.contains(&format!("# TYPE {figure} gauge\n"));
                assert!(is_written, "{name}: {figure} is not written:\n{written}");
            }
            assert!(figures.len() >= least, "{name}: {figures:?}");
        }
    }
}
