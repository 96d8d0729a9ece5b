// SPDX-License-Identifier: GPL-2.0
/*
 * A known beginning for recordings. Whoever writes to /sys/kernel/debug/page_alloc_begin has the
 * lists of all CPUs emptied into their zones; in the RFC's kernel every pageblock is the zone's
 * afterwards, too (disown.c), as after boot. A recording tells neither what lay on the lists before
 * it nor who owned which block.
 */
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/init.h>

#include "counts.h"

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

static const struct file_operations begin_operations = {
	.write = begin_write,
};

FH_FILE(page_alloc_begin, 0200, begin_operations);
