// SPDX-License-Identifier: GPL-2.0
/*
 * What an allocation with its free costs: /sys/kernel/debug/page_alloc_cost, measured when it is
 * read, in hundredths of a nanosecond. Under QEMU's -icount shift=0 a nanosecond is an instruction,
 * of all that a call runs: the way in, watermarks, struct page, counts. "pair" frees at once what
 * was allocated; "batch" allocates 64 and then frees them. Each is the least of some rounds, since
 * a timer's interrupt only adds. Pages are not cleared.
 */
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/seq_file.h>

#include "counts.h"

#define ROUNDS 7
#define PAIRS 1024
#define BATCH 64
#define COST_GFP (GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY)

/* ULLONG_MAX where memory ran out. */
static u64 pairs_take(unsigned int order)
{
	u64 began = ktime_get_ns();

	for (unsigned int i = 0; i < PAIRS; i++) {
		struct page *page = alloc_pages(COST_GFP, order);

		if (!page)
			return U64_MAX;
		__free_pages(page, order);
	}
	return ktime_get_ns() - began;
}

static u64 batches_take(unsigned int order)
{
	struct page *pages[BATCH];
	u64 began = ktime_get_ns();

	for (unsigned int done = 0; done < PAIRS; done += BATCH) {
		unsigned int got = 0;

		while (got < BATCH && (pages[got] = alloc_pages(COST_GFP, order)))
			got++;
		for (unsigned int i = 0; i < got; i++)
			__free_pages(pages[i], order);
		if (got < BATCH)
			return U64_MAX;
	}
	return ktime_get_ns() - began;
}

static void show_least(struct seq_file *file, const char *what, unsigned int order,
		       u64 (*take)(unsigned int))
{
	u64 least = U64_MAX;

	for (int round = 0; round < ROUNDS; round++)
		least = min(least, take(order));
	if (least != U64_MAX)
		seq_printf(file, "%s_order%u %llu\n", what, order, least * 100 / PAIRS);
}

static int cost_show(struct seq_file *file, void *unused)
{
	static const unsigned int orders[] = { 0, 1, 2, 3, 4, 6, 9 };

	for (int i = 0; i < ARRAY_SIZE(orders); i++) {
		show_least(file, "pair", orders[i], pairs_take);
		show_least(file, "batch", orders[i], batches_take);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(cost);

FH_FILE(page_alloc_cost, 0400, cost_fops);
