// SPDX-License-Identifier: GPL-2.0
/*
 * Prints what mm/page_alloc.c has counted: counts.h. And a known beginning for recordings: whoever
 * writes to /sys/kernel/debug/page_alloc_begin has the lists of all CPUs emptied into their zones;
 * in the RFC's kernel every pageblock is the zone's afterwards, too (disown.c), as after boot. A
 * recording tells neither what lay on the lists before it nor who owned which block.
 */
#include "counts.h"

#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/seq_file.h>

atomic_long_t fh_counts[FH_COUNTS];

/* Kernels without Freehold. */
__weak void fh_note_lock(const struct zone *zone, const char *function)
{
}

static const char *const names[FH_COUNTS] = {
	[FH_ZONE_LOCKS] = "zone_locks",		[FH_ZONE_WAITS] = "zone_waits",
	[FH_REFILLS] = "refills",		[FH_PHASE0_FRAMES] = "phase0_frames",
	[FH_PHASE1_FRAMES] = "phase1_frames",	[FH_PHASE2_FRAMES] = "phase2_frames",
	[FH_PHASE3_FRAMES] = "phase3_frames",	[FH_DRAINS] = "drains",
	[FH_DRAINED_FRAMES] = "drained_frames", [FH_MERGES] = "merges",
	[FH_REMOTE_FREES] = "remote_frees",
};

static int counts_show(struct seq_file *file, void *unused)
{
	for (int what = 0; what < FH_COUNTS; what++)
		seq_printf(file, "%s %ld\n", names[what], atomic_long_read(&fh_counts[what]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counts);

FH_FILE(page_alloc_counts, 0444, counts_fops);

/* Kernels whose CPUs own nothing. */
__weak void fh_disown(void)
{
}

static ssize_t begin_write(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	drain_all_pages(NULL);
	fh_disown();
	return size;
}

static const struct file_operations begin_operations = { .write = begin_write };

FH_FILE(page_alloc_begin, 0200, begin_operations);
