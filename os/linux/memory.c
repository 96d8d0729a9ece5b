// SPDX-License-Identifier: MIT OR Apache-2.0
/* Memory: blocks of 2 MiB that the kernel lends us. All of it goes back: one by one under pressure, and at unload. */
#include "fh.h"

#include <linux/bitmap.h>
#include <linux/cpumask.h>
#include <linux/mm.h>
#include <linux/page_ref.h>
#include <linux/percpu.h>
#include <linux/workqueue.h>

unsigned long *fh_block_map;
static atomic_t count;
static unsigned int target;
static unsigned long last_given;
static struct delayed_work tending;
static DEFINE_PER_CPU(struct work_struct, ticks);
unsigned long fh_first_pfn, fh_end_pfn;
atomic64_t fh_taken, fh_given;

unsigned int fh_memory_blocks(void)
{
	return atomic_read(&count);
}

/* The only reference is ours, and goes. */
static bool unshare(struct page *page)
{
	bool watched = fh_planted("watched"), alone;

	if (watched)
		get_page(page);
	alone = page_ref_freeze(page, 1);
	if (watched)
		put_page(page);
	return alone;
}

/*
 * Without a lock: while the kernel looks for memory our own shrinker may be called. At first the kernel may make room for
 * us; what pressure took comes back only where there is room.
 */
static bool take_one(void)
{
	gfp_t gfp = target ? GFP_KERNEL & ~__GFP_RECLAIM : GFP_KERNEL | __GFP_NORETRY;
	struct page *page = alloc_pages(gfp | __GFP_NOWARN, FH_BLOCK_ORDER);
	unsigned long pfn;
	freehold_error error;

	if (!page)
		return false;
	pfn = page_to_pfn(page);
	/*
	 * Memory that the machine got after us is in none of our books. Nor may somebody who walks all pages have a reference
	 * just now: like the pages behind it the first one is to have none, so that nobody gets one.
	 */
	if (fh_block_number(pfn) >= FH_BLOCK_NUMBERS || !unshare(page)) {
		__free_pages(page, FH_BLOCK_ORDER);
		return false;
	}
	/* Before anybody gets a frame of it, who might free it at once. */
	set_bit(fh_block_number(pfn), fh_block_map);
	if (FH_HOTPLUG(freehold_add_memory(fh_allocators[0], pfn, pfn + FH_BLOCK_FRAMES, &error))) {
		pr_err_ratelimited("a block cannot be added: %s\n", error.message);
		clear_bit(fh_block_number(pfn), fh_block_map);
		set_page_count(page, 1);
		__free_pages(page, FH_BLOCK_ORDER);
		return false;
	}
	atomic_inc(&count);
	atomic64_inc(&fh_taken);
	return true;
}

static void back_to_kernel(unsigned long pfn)
{
	struct page *page = pfn_to_page(pfn);

	clear_bit(fh_block_number(pfn), fh_block_map);
	atomic_dec(&count);
	atomic64_inc(&fh_given);
	/* As it was handed to us. */
	set_page_count(page, 1);
	__free_pages(page, FH_BLOCK_ORDER);
}

/* Allocating a block tells which one is free. Between its free and its removal somebody may take it: then it stays. */
static bool give_one(void)
{
	u64 pfn;

	if (fh_alloc(GFP_NOWAIT | __GFP_MOVABLE, FH_BLOCK_ORDER, &pfn))
		return false;
	if (fh_free(pfn, FH_BLOCK_ORDER))
		return false;
	if (FH_HOTPLUG(freehold_remove_memory(fh_allocators[0], pfn, pfn + FH_BLOCK_FRAMES, NULL)))
		return false;
	back_to_kernel(pfn);
	WRITE_ONCE(last_given, jiffies);
	return true;
}

unsigned int fh_memory_take(unsigned int wanted)
{
	unsigned int taken = 0;

	while (taken < wanted && take_one())
		taken++;
	return taken;
}

unsigned int fh_memory_give(unsigned int wanted)
{
	unsigned int given = 0;

	while (given < wanted && give_one())
		given++;
	return given;
}

static void tick_this_cpu(struct work_struct *unused)
{
	fh_tick();
}

/* Ten times a second: what pressure took comes back once that is over. Once a second: each CPU's periodic work. */
static void tend(struct work_struct *unused)
{
	static unsigned int turn;
	unsigned int cpu, missing = target - min(target, fh_memory_blocks());

	if (missing && time_after(jiffies, READ_ONCE(last_given) + HZ / 10))
		fh_memory_take(missing);
	if (++turn % 10 == 0) {
		/* One that leaves meanwhile has it done elsewhere, where it does no harm. */
		for_each_online_cpu(cpu)
			queue_work_on(cpu, system_wq, per_cpu_ptr(&ticks, cpu));
	}
	schedule_delayed_work(&tending, HZ / 10);
}

int fh_memory_start(unsigned int wanted)
{
	unsigned int cpu, taken;

	fh_block_map = bitmap_zalloc(FH_BLOCK_NUMBERS, GFP_KERNEL);
	if (!fh_block_map)
		return -ENOMEM;
	taken = fh_memory_take(wanted);
	pr_info("%u of %u blocks of 2 MiB taken\n", taken, wanted);
	if (taken != wanted)
		return -ENOMEM;
	for_each_possible_cpu(cpu)
		INIT_WORK(per_cpu_ptr(&ticks, cpu), tick_this_cpu);
	target = wanted;
	INIT_DELAYED_WORK(&tending, tend);
	schedule_delayed_work(&tending, HZ / 10);
	return 0;
}

void fh_memory_hold(void)
{
	unsigned int cpu;

	if (!target)
		return;
	cancel_delayed_work_sync(&tending);
	for_each_possible_cpu(cpu)
		cancel_work_sync(per_cpu_ptr(&ticks, cpu));
}

/* What somebody still has must not become another's: such a block is nobody's from now on, until the machine boots again. */
void fh_memory_stop(void)
{
	unsigned long number, pfn;

	for_each_set_bit(number, fh_block_map, fh_block_map ? FH_BLOCK_NUMBERS : 0) {
		pfn = fh_first_pfn + (number << FH_BLOCK_ORDER);
		if (!FH_HOTPLUG(freehold_remove_memory(fh_allocators[0], pfn, pfn + FH_BLOCK_FRAMES, NULL)))
			back_to_kernel(pfn);
	}
	if (fh_memory_blocks())
		pr_err("LEAK: %u blocks stay taken: frames of them are in use\n", fh_memory_blocks());
	bitmap_free(fh_block_map);
	pr_info("%lld blocks taken, %lld given back\n", atomic64_read(&fh_taken), atomic64_read(&fh_given));
}
