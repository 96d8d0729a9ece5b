//! Which pieces of memory the hand-over gives a zone's allocator, by its own functions and without
//! a kernel: a zone may begin or end within a block, which no machine that we boot shows.

use std::fs;
use std::process::Command;

use crate::build;

/// What these functions ask of a kernel, of which there are four zones; and what calls them.
const KERNEL: &str = "\
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#define __init
#define MAX_PIECES 64
#define FH_BLOCK_FRAMES 512ul
#define round_down(at, to) ((at) / (to) * (to))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define zone_end_pfn(zone) (zone)->end
#define zone_spans_pfn(zone, pfn) ((pfn) >= (zone)->zone_start_pfn && (pfn) < (zone)->end)
#define page_zone(page) page
#define page zone
typedef struct { unsigned long start, end; } freehold_frame_range;
struct zone { unsigned long zone_start_pfn, end; } zones[] =
	{ { 1, 2016 }, { 2560, 4352 }, { 4352, 5000 }, { 5100, 8192 } };
/* A hole has the links of the zone behind it. */
static struct zone *pfn_to_online_page(unsigned long pfn)
{
	for (int at = 0; at < 4; at++)
		if (pfn < zones[at].end)
			return &zones[at];
	return 0;
}
";
const MAIN: &str = "int main(void)
{
	freehold_frame_range pieces[MAX_PIECES];
	for (int at = 0; at < 4; at++)
		for (size_t i = 0, n = find_pieces(&zones[at], is_of, pieces); i < n; i++)
			printf(\"%d %lu %lu\\n\", at, pieces[i].start, pieces[i].end);
}
";

#[test]
fn a_zone_gets_what_it_spans_and_no_frame_of_a_hole_or_of_another_zone() {
    let source = fs::read_to_string(build::root().join("os/linux/built/freehold.c")).unwrap();
    let part = |from: &str, to: &str| {
        let (_, rest) = source.split_once(from).unwrap();
        format!("{from}{}", rest.split_once(to).unwrap().0)
    };
    let folder = std::env::temp_dir().join(format!("freehold-pieces-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let zone_of = part("static struct zone *__init zone_of(", "static bool __init is_cma_of(");
    let find = part("static size_t __init find_pieces(", "/* Memory that comes later");
    fs::write(folder.join("pieces.c"), [KERNEL, &zone_of, &find, MAIN].concat()).unwrap();
    let mut cc = Command::new("cc");
    cc.current_dir(&folder).args(["-std=gnu11", "-o", "pieces", "pieces.c"]);
    let Ok(made) = cc.output() else { return eprintln!("SKIPPED: there is no C compiler") };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let told = Command::new(folder.join("pieces")).output().unwrap().stdout;
    fs::remove_dir_all(&folder).unwrap();
    let told = String::from_utf8(told).unwrap();
    assert_eq!(told, "0 1 2016\n1 2560 4352\n2 4352 5000\n3 5100 8192\n");
}
