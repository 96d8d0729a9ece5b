// SPDX-License-Identifier: GPL-2.0
/*
 * Free page reporting of Freehold's zones: whole blocks that are free are taken, shown to the
 * device, and freed again.
 *
 * The kernel marks a page in its lists as reported, and the mark goes when the page leaves them.
 * Freehold has no lists, so the mark is a bit here for each block. An allocation takes it away
 * (fh_account()), at the cost of a branch that is patched in with the first device.
 */
#include "fh.h"

#include <linux/bitmap.h>
#include <linux/init.h>
#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/page_reporting.h>
#include <linux/scatterlist.h>

#include "../internal.h"
#include "../page_reporting.h"
#include "hooks.h"
#include "own.h"
#include "walkers.h"

DEFINE_STATIC_KEY_FALSE(fh_reports);
static unsigned long *reported;
static bool again;

void fh_unreport(unsigned long pfn, unsigned long frames)
{
	for (unsigned long block = fh_block_number(pfn);
	     block <= fh_block_number(pfn + frames - 1); block++) {
		if (!test_bit(block, reported))
			continue;
		clear_bit(block, reported);
		WRITE_ONCE(again, true);
	}
}

/* The kernel notices pages that come to its lists; here somebody looks once a second. */
void fh_report_again(void)
{
	if (!READ_ONCE(again))
		return;
	WRITE_ONCE(again, false);
	page_reporting_notify_free(pageblock_order);
}

/* Takes the block if all of it is free; may wait for a CPU that has it in hand. */
static bool take_block(unsigned long pfn)
{
	freehold_pageblock block;

	if (freehold_read_pageblock(fh_of(pfn), pfn, &block, NULL) || block.free != FH_BLOCK_FRAMES)
		return false;
	if (block.migratetype == FREEHOLD_MIGRATETYPE_ISOLATE)
		return false;
	return !FH_ALONE(freehold_alloc_contig_range(fh_of(pfn), pfn, pfn + FH_BLOCK_FRAMES, NULL,
						     NULL, NULL));
}

static int report(struct page_reporting_dev_info *device, struct scatterlist *list,
		  unsigned int count)
{
	int status = device->report(device, list, count);

	for (unsigned int at = 0; at < count; at++) {
		unsigned long pfn = page_to_pfn(sg_page(&list[at]));

		/* Before anybody may get it again. */
		if (!status)
			set_bit(fh_block_number(pfn), reported);
		fh_free_page(pfn, FH_BLOCK_ORDER);
	}
	sg_init_table(list, PAGE_REPORTING_CAPACITY);
	return status;
}

int fh_report_free(struct page_reporting_dev_info *device, struct zone *zone,
		   struct scatterlist *list)
{
	unsigned long block, count = 0;
	int status = 0;

	if (!reported) {
		reported = bitmap_zalloc(FH_BLOCK_NUMBERS, GFP_KERNEL);
		if (!reported)
			return -ENOMEM;
		static_branch_enable(&fh_reports);
	}
	for_each_set_bit(block, fh_block_map, FH_BLOCK_NUMBERS) {
		unsigned long pfn = block << FH_BLOCK_ORDER;

		if (test_bit(block, reported) || !pfn_to_online_page(pfn) ||
		    page_zone(pfn_to_page(pfn)) != zone)
			continue;
		if (!take_block(pfn))
			continue;
		fh_account(pfn, -(long)FH_BLOCK_FRAMES);
		sg_set_page(&list[count++], pfn_to_page(pfn), FH_BLOCK_FRAMES * PAGE_SIZE, 0);
		if (count == PAGE_REPORTING_CAPACITY) {
			status = report(device, list, count);
			count = 0;
			cond_resched();
		}
		if (status)
			return status;
	}
	return count ? report(device, list, count) : 0;
}
