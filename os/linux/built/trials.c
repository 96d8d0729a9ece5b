// SPDX-License-Identifier: GPL-2.0
/*
 * What no program can ask the kernel for, so that the guest's loads can: in /sys/kernel/debug, for
 * all kernels.
 *
 *   contig_trial      "PFN FRAMES" written: those frames are allocated by alloc_contig_range(),
 *                     written to, read and freed; the write fails where they cannot be had
 *   isolation_trial   written: a block in use cannot be isolated; once it is free it can, twice,
 *                     and nobody gets it meanwhile
 *   cma_trial         written: no request for unmovable memory gets a block of CMA memory, some
 *                     request for movable memory does
 *   blocks_trial      "BLOCKS" written: at most so many that are whole are taken, then so many are
 *                     asked for by whoever may compact and reclaim, and all are freed; read, how
 *                     many there were of the latter. blocks_order: of that order instead;
 *                     blocks_unmovable: unmovable ones; blocks_alone: kswapd has given up
 *   scanners_trial    read: compaction forgets which blocks it has skipped; how far apart its two
 *                     scanners begin then, in hundredths of a zone, the least of all large ones
 *   reporting_trial   a device for free page reporting, from a written 1 to a written 0; read, the
 *                     frames that it was shown
 */
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/page-isolation.h>
#include <linux/page_reporting.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

/* It includes nothing of what it uses. */
#include <linux/compaction.h>

/*
 * Each page has one reference, is nobody else's while it is written to, and keeps what was written.
 */
static int check_pages(unsigned long pfn, unsigned long frames)
{
	for (unsigned long at = pfn; at < pfn + frames; at++) {
		if (page_count(pfn_to_page(at)) != 1 || PageLRU(pfn_to_page(at)))
			return -EUCLEAN;
		memset64(page_address(pfn_to_page(at)), at, PAGE_SIZE / 8);
	}
	cond_resched();
	for (unsigned long at = pfn; at < pfn + frames; at++) {
		u64 *words = page_address(pfn_to_page(at));

		for (int word = 0; word < PAGE_SIZE / sizeof(*words); word++)
			if (words[word] != at)
				return -EUCLEAN;
	}
	return 0;
}

static ssize_t contig_write(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	unsigned long pfn, frames;
	char words[64] = {};
	int status;

	if (size >= sizeof(words) || copy_from_user(words, text, size) ||
	    sscanf(words, "%lu %lu", &pfn, &frames) != 2)
		return -EINVAL;
	if (!frames || !pfn_to_online_page(pfn) || !pfn_to_online_page(pfn + frames - 1))
		return -EINVAL;
	status = alloc_contig_range(pfn, pfn + frames, ACR_FLAGS_NONE, GFP_KERNEL | __GFP_NOWARN);
	if (status)
		return status;
	status = check_pages(pfn, frames);
	free_contig_range(pfn, frames);
	WARN(status, "pages of a contiguous range are somebody else's");
	return status ?: size;
}

static const struct file_operations contig_operations = {
	.owner = THIS_MODULE, .write = contig_write
};

/*
 * Takes every whole block that there is, those that are kept for others included, and frees them;
 * how many were of that type.
 */
static unsigned long take_all_blocks(gfp_t gfp, int type)
{
	struct page *page, *next;
	unsigned long found = 0;
	LIST_HEAD(taken);

	while ((page = alloc_pages(gfp | __GFP_MEMALLOC | __GFP_NOWARN, pageblock_order))) {
		found += get_pageblock_migratetype(page) == type;
		list_add(&page->lru, &taken);
	}
	list_for_each_entry_safe(page, next, &taken, lru)
		__free_pages(page, pageblock_order);
	return found;
}

static unsigned long blocks_had;
static u32 blocks_order;
static bool blocks_unmovable, blocks_alone;

/* Chunks, so many or as many as there are, into a list; how many. */
static unsigned long take_blocks(gfp_t gfp, unsigned long wanted, struct list_head *taken)
{
	unsigned long had;

	for (had = 0; had < wanted; had++) {
		struct page *page = alloc_pages(gfp | __GFP_NOWARN, blocks_order);

		if (!page)
			break;
		list_add(&page->lru, taken);
	}
	return had;
}

/* After many failures it sleeps, and what compaction has noted stays. */
static void kswapd_fails(int times)
{
	int node;

	for_each_online_node(node)
		atomic_set(&NODE_DATA(node)->kswapd_failures, times);
}

static int blocks_set(void *unused, u64 wanted)
{
	struct page *page, *next;
	LIST_HEAD(taken);
	/* Movable ones leave all blocks places to move to. */
	gfp_t type = blocks_unmovable ? 0 : __GFP_MOVABLE;

	if (blocks_alone)
		kswapd_fails(INT_MAX / 2);
	take_blocks(type, wanted, &taken);
	blocks_had = take_blocks(GFP_USER | type | __GFP_RETRY_MAYFAIL, wanted, &taken);
	if (blocks_alone)
		kswapd_fails(0);
	list_for_each_entry_safe(page, next, &taken, lru)
		__free_pages(page, blocks_order);
	return 0;
}

static int blocks_get(void *unused, u64 *had)
{
	*had = blocks_had;
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(blocks_operations, blocks_get, blocks_set, "%llu\n");

/* How far apart compaction's scanners begin after its notes are gone, in hundredths of the zone. */
static int scanners_get(void *unused, u64 *apart)
{
	struct zone *zone;

	*apart = 100;
	for_each_populated_zone(zone) {
		unsigned long from, to;

		if (zone_managed_pages(zone) < totalram_pages() / 4)
			continue;
		zone->compact_blockskip_flush = true;
		reset_isolation_suitable(zone->zone_pgdat);
		from = zone->compact_cached_migrate_pfn[0];
		to = max(from, zone->compact_cached_free_pfn);
		*apart = min(*apart, (to - from) * 100 / zone->spanned_pages);
	}
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(scanners_operations, scanners_get, NULL, "%llu\n");

static int isolate(unsigned long pfn)
{
	return start_isolate_page_range(pfn, pfn + pageblock_nr_pages, PB_ISOLATE_MODE_OTHER);
}

static ssize_t isolation_write(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	struct page *page = alloc_pages(__GFP_MOVABLE | __GFP_NOWARN, pageblock_order);
	unsigned long pfn, got = 0;
	int status;

	if (!page)
		return -ENOMEM;
	pfn = page_to_pfn(page);
	status = isolate(pfn);
	__free_pages(page, pageblock_order);
	if (!status) {
		undo_isolate_page_range(pfn, pfn + pageblock_nr_pages);
		return -EUCLEAN;
	}
	for (int round = 0; round < 2 && !got; round++) {
		status = isolate(pfn);
		if (status)
			return status;
		/* What the lists of CPUs have of it was theirs before. */
		drain_all_pages(NULL);
		got = take_all_blocks(__GFP_MOVABLE, MIGRATE_ISOLATE);
		undo_isolate_page_range(pfn, pfn + pageblock_nr_pages);
	}
	return got ? -EUCLEAN : size;
}

static const struct file_operations isolation_operations = {
	.owner = THIS_MODULE, .write = isolation_write
};

#ifdef CONFIG_CMA
static ssize_t cma_write(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	if (take_all_blocks(0, MIGRATE_CMA))
		return -EUCLEAN;
	return take_all_blocks(__GFP_MOVABLE, MIGRATE_CMA) ? size : -ENODATA;
}

static const struct file_operations cma_operations = { .owner = THIS_MODULE, .write = cma_write };
#endif

#ifdef CONFIG_PAGE_REPORTING
static atomic_long_t shown;

static int show_device(struct page_reporting_dev_info *unused, struct scatterlist *list,
		       unsigned int count)
{
	for (unsigned int at = 0; at < count; at++) {
		WARN_ONCE(page_count(sg_page(&list[at])), "a page in use is reported as free");
		atomic_long_add(list[at].length >> PAGE_SHIFT, &shown);
	}
	return 0;
}

static struct page_reporting_dev_info device = {
	.report = show_device, .order = PAGE_REPORTING_ORDER_UNSPECIFIED
};

static int reporting_set(void *unused, u64 on)
{
	if (on)
		return page_reporting_register(&device);
	page_reporting_unregister(&device);
	return 0;
}

static int reporting_get(void *unused, u64 *frames)
{
	*frames = atomic_long_read(&shown);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(reporting_operations, reporting_get, reporting_set, "%llu\n");
#endif

static int __init trials_start(void)
{
	debugfs_create_file("contig_trial", 0200, NULL, NULL, &contig_operations);
	blocks_order = pageblock_order;
	debugfs_create_u32("blocks_order", 0600, NULL, &blocks_order);
	debugfs_create_bool("blocks_unmovable", 0600, NULL, &blocks_unmovable);
	debugfs_create_bool("blocks_alone", 0600, NULL, &blocks_alone);
	debugfs_create_file("blocks_trial", 0600, NULL, NULL, &blocks_operations);
	debugfs_create_file("scanners_trial", 0400, NULL, NULL, &scanners_operations);
	debugfs_create_file("isolation_trial", 0200, NULL, NULL, &isolation_operations);
#ifdef CONFIG_CMA
	debugfs_create_file("cma_trial", 0200, NULL, NULL, &cma_operations);
#endif
#ifdef CONFIG_PAGE_REPORTING
	debugfs_create_file("reporting_trial", 0600, NULL, NULL, &reporting_operations);
#endif
	return 0;
}
late_initcall(trials_start);
