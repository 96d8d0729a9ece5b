// SPDX-License-Identifier: GPL-2.0
/*
 * What an area of vmalloc() costs, and a chunk that is split and freed as a range: read from
 * /sys/kernel/debug/page_alloc_ranges, in nanoseconds of a loop, measured when it is read. Under
 * QEMU's -icount shift=0 a nanosecond is an instruction. The loops are the kernel's own, of
 * lib/test_vmalloc.c, and the one in the first mail of the thread about contiguous frees. What a
 * test does before its loop is taken off: it is run without a loop, too, once page tables and slabs
 * are there. Not here: full_fit_alloc_test, whose loop is nothing beside what it does before.
 */
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/seq_file.h>

/* Without its way in: it is no module here. */
#pragma push_macro("late_initcall")
#undef late_initcall
#define late_initcall(name)
#pragma GCC diagnostic ignored "-Wunused-function"
#include "../../lib/test_vmalloc.c"
#include "counts.h"
#pragma pop_macro("late_initcall")

#define LOOPS 500

static int split_and_free(void)
{
	for (int i = 0; i < test_loop_count; i++) {
		struct page *page = alloc_pages(GFP_KERNEL, HPAGE_PMD_ORDER);

		if (!page)
			return -1;
		split_page(page, HPAGE_PMD_ORDER);
		free_contig_range(page_to_pfn(page), 1ul << HPAGE_PMD_ORDER);
	}
	return 0;
}

/* 0 where memory ran out. */
static u64 takes(int (*test)(void), int loops)
{
	u64 began = ktime_get_ns();

	test_loop_count = loops;
	return test() ? 0 : ktime_get_ns() - began;
}

static int show_loop(struct seq_file *file, const char *name, int (*test)(void))
{
	u64 warm = takes(test, LOOPS), before = takes(test, 0), all = takes(test, LOOPS);

	if (!warm || !before || all <= before)
		return -ENOMEM;
	seq_printf(file, "%s %llu\n", name, (all - before) / LOOPS);
	return 0;
}

static int show_sizes(struct seq_file *file, bool huge)
{
	static const int sizes[] = { 1, 4, 16, 64, 256, 512 };
	int status = 0;

	use_huge = huge;
	for (int i = 0; i < ARRAY_SIZE(sizes) && !status; i++) {
		char name[32];

		nr_pages = sizes[i];
		snprintf(name, sizeof(name), "fix_size p:%d, h:%d", nr_pages, huge);
		status = show_loop(file, name, fix_size_alloc_test);
	}
	return status;
}

static int ranges_show(struct seq_file *file, void *unused)
{
	return show_loop(file, "split_and_free", split_and_free) ?:
	       show_sizes(file, false) ?:
	       show_sizes(file, true) ?:
	       show_loop(file, "fix_align", fix_align_alloc_test) ?:
	       show_loop(file, "long_busy_list", long_busy_list_alloc_test) ?:
	       show_loop(file, "random_size_align", random_size_align_alloc_test) ?:
	       show_loop(file, "random_size", random_size_alloc_test);
}
DEFINE_SHOW_ATTRIBUTE(ranges);

FH_FILE(page_alloc_ranges, 0400, ranges_fops);
