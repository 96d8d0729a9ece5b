// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of Freehold's zones that go: memory that is taken offline, and single pages that are
 * broken. Both are taken out of Freehold, as if somebody had allocated them, and come back by a
 * free.
 *
 *   offline   isolate -> users move away -> fh_take_offline(): nobody has any of it, and the block
 *             stays isolated
 *   online    the kernel frees what it brings online, here as anywhere -> restore
 *   added     memory that the machine did not have becomes Freehold's when it first comes online:
 *             all of it in use, and isolated, as what has gone offline; then as above
 *
 * Memory that has gone may come back as another zone's: the former zone's allocator has it for good,
 * as if in use. What cannot be had is refused, with the reason in the log: memory that the zone has
 * no room for, and memory of a zone of Freehold's that is to be the kernel's own.
 */
#include "fh.h"

#include <linux/init.h>
#include <linux/memory.h>
#include <linux/mm.h>
#include <linux/notifier.h>

#include "../internal.h"
#include "own.h"
#include "taken.h"
#include "walkers.h"

unsigned long fh_gone_blocks[FH_ALLOCATORS];

static void give_back(unsigned long base, const freehold_block_frames *taken)
{
	unsigned int at, order;

	for_each_taken(taken, at, order)
		fh_free_page(base + at, order);
}

/* A page that is broken was taken before. */
static bool is_gone(unsigned long base, const freehold_block_frames *taken)
{
	for (unsigned int at = 0; at < FH_BLOCK_FRAMES; at++)
		if (!test_bit(at, (const unsigned long *)taken->words) &&
		    !PageHWPoison(pfn_to_page(base + at)))
			return false;
	return true;
}

int fh_take_offline(unsigned long start_pfn, unsigned long end_pfn)
{
	unsigned long pfn;
	int status = 0;

	for (pfn = start_pfn; pfn < end_pfn && !status; pfn += FH_BLOCK_FRAMES) {
		freehold_block_frames taken;

		if (!fh_has_page(pfn))
			continue;
		if (freehold_take_free(fh_of(pfn), pfn, pfn + FH_BLOCK_FRAMES, &taken, NULL)) {
			status = -EINVAL;
			continue;
		}
		fh_account(pfn, -(long)count_taken(&taken));
		if (!is_gone(pfn, &taken)) {
			give_back(pfn, &taken);
			status = -EBUSY;
		}
	}
	if (!status) {
		fh_gone_blocks[fh_number(start_pfn)] += (end_pfn - start_pfn) >> FH_BLOCK_ORDER;
		return 0;
	}
	/* Those before it were all free. */
	for (pfn -= FH_BLOCK_FRAMES; pfn > start_pfn; pfn -= FH_BLOCK_FRAMES)
		for (unsigned long page = pfn - FH_BLOCK_FRAMES; fh_has_page(page) && page < pfn;
		     page++)
			if (!PageHWPoison(pfn_to_page(page)))
				fh_free_page(page, 0);
	return status;
}

/* A block that the zone's allocator has not had yet. Where it cannot have it the reason. */
static const char *add(unsigned long pfn, struct zone *zone)
{
	/* One memory comes at a time. */
	static freehold_error error;
	unsigned long end = pfn + FH_BLOCK_FRAMES;

	if (end > fh_end_pfn)
		return "Freehold has left no room there";
	if (FH_ALONE(freehold_add_memory_in_use(fh_of_zone(zone), pfn, end, &error)))
		return error.message;
	if (FH_ALONE(freehold_isolate(fh_of_zone(zone), pfn, end, &error)))
		return error.message;
	set_bit(fh_block_number(pfn), fh_block_map);
	fh_gone_blocks[fh_number_of_zone(zone)]++;
	return NULL;
}

static int on_memory(struct notifier_block *unused, unsigned long action, void *data)
{
	struct memory_notify *memory = data;
	unsigned long pfn = memory->start_pfn, end = pfn + memory->nr_pages;
	struct zone *zone = page_zone(pfn_to_page(pfn));
	bool ours = fh_is_allocator_of(zone);
	const char *why = NULL;

	if (action == MEM_ONLINE && ours)
		fh_gone_blocks[fh_number_of_zone(zone)] -= memory->nr_pages >> FH_BLOCK_ORDER;
	if (action != MEM_GOING_ONLINE)
		return NOTIFY_OK;
	for (; pfn < end && !why; pfn += FH_BLOCK_FRAMES) {
		if (!ours && fh_has_page(pfn))
			why = "it was Freehold's, and is to be the kernel's own";
		else if (ours && freehold_zone_of(fh_of_zone(zone), pfn) < 0)
			why = add(pfn, zone);
	}
	if (!why)
		return NOTIFY_OK;
	pr_err("REFUSED: memory at frame %lu cannot come online: %s\n", memory->start_pfn, why);
	return NOTIFY_BAD;
}

static struct notifier_block notifier = { .notifier_call = on_memory };

static int __init gone_start(void)
{
	return register_memory_notifier(&notifier);
}
late_initcall(gone_start);

#ifdef CONFIG_MEMORY_FAILURE
/* Also out of another CPU's hand. */
bool fh_take_page_off(struct page *page)
{
	unsigned long pfn = page_to_pfn(page);

	for (int tries = 0;
	     FH_ALONE(freehold_alloc_contig_range(fh_of(pfn), pfn, pfn + 1, NULL, NULL, NULL));
	     tries++)
		if (!fh_free_run(pfn) || !fh_wait_for_emptying(tries))
			return false;
	fh_account(pfn, -1);
	SetPageHWPoisonTakenOff(page);
	return true;
}

bool fh_put_page_back(struct page *page)
{
	bool was_poisoned;

	if (!put_page_testzero(page))
		return false;
	ClearPageHWPoisonTakenOff(page);
	was_poisoned = TestClearPageHWPoison(page);
	fh_free_page(page_to_pfn(page), 0);
	return was_poisoned;
}
#endif
