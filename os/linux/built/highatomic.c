// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is full, or full of holes, and requests that may not wait, so that a load can ask for
 * them: in all kernels, as /sys/kernel/debug/atomic_trial. Written:
 *
 *   fill N      single pages for ordinary requests that do not reclaim, until there is none; the
 *               last N of them are freed, for the processes that there are
 *   holes       of those the pages with an odd number are freed: what is free then is no chunk of
 *               two pages
 *   ordinary N  chunks of order 3 for such requests, N or as many as there are
 *   atomic N    N chunks of order 3 for atomic requests of another CPU's interrupt
 *   room N      the last N single pages are freed: as many as chunks were taken of, so that
 *               processes go on
 *   chunks      all chunks are freed
 *   single N    N single pages for atomic requests of such an interrupt, freed at once
 *   press N     N single pages for requests that reclaim, freed at once; fails where one gets
 *               nothing
 *   free        all pages and chunks are freed
 *
 * What has been freed by one command is in no CPU's list when it ends. Read, it says how many pages
 * and chunks there are, and how many of the last ones asked for were had.
 */
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "counts.h"

#define CHUNK_ORDER 3
/* Nor is kswapd woken, nor may it have what is kept for those who cannot wait. */
#define ORDINARY (__GFP_NOWARN | __GFP_NOMEMALLOC)

struct pages {
	struct list_head list;
	unsigned long count;
};

static DEFINE_MUTEX(running);
static struct pages singles = { LIST_HEAD_INIT(singles.list) },
		    chunks = { LIST_HEAD_INIT(chunks.list) };
static unsigned long had;

/* What one command asks for. */
struct wanted {
	struct pages *into;
	gfp_t gfp;
	unsigned int order;
	unsigned long count;
	bool may_sleep;
	struct irq_work work;
};

static void take(struct wanted *wanted)
{
	for (unsigned long at = 0; at < wanted->count; at++) {
		struct page *page = alloc_pages(wanted->gfp, wanted->order);

		if (!page)
			return;
		had++;
		list_add(&page->lru, &wanted->into->list);
		wanted->into->count++;
		if (wanted->may_sleep && at % 512 == 0)
			cond_resched();
	}
}

static void take_now(struct irq_work *work)
{
	take(container_of(work, struct wanted, work));
}

/*
 * By another CPU's interrupt, where there is one: of a kind in which allocators may take their
 * locks, also by lockdep's rules for kernels whose spinlocks sleep.
 */
static void take_in_interrupt(struct wanted *wanted)
{
	unsigned int cpu, here = get_cpu();

	cpu = cpumask_any_but(cpu_online_mask, here);
	init_irq_work(&wanted->work, take_now);
	irq_work_queue_on(&wanted->work, cpu < nr_cpu_ids ? cpu : here);
	put_cpu();
	irq_work_sync(&wanted->work);
}

/* At most so many, the last ones first. */
static void give(struct pages *from, unsigned int order, bool odd_ones, unsigned long most)
{
	struct page *page, *next;
	unsigned long done = 0;

	list_for_each_entry_safe(page, next, &from->list, lru) {
		if (done == most)
			return;
		if (odd_ones && !(page_to_pfn(page) & 1))
			continue;
		list_del(&page->lru);
		from->count--;
		__free_pages(page, order);
		if (++done % 512 == 0)
			cond_resched();
	}
}

/* Some pages for a moment; whether all could be had. */
static int for_a_moment(gfp_t gfp, unsigned long count)
{
	struct pages taken = { LIST_HEAD_INIT(taken.list) };
	struct wanted wanted = { &taken, gfp, 0, count, gfpflags_allow_blocking(gfp) };
	bool all;

	if (wanted.may_sleep)
		take(&wanted);
	else
		take_in_interrupt(&wanted);
	all = taken.count == count;
	give(&taken, 0, false, ULONG_MAX);
	return all ? 0 : -ENOMEM;
}

static int trial(const char *what, unsigned long count)
{
	struct wanted single = { &singles, ORDINARY, 0, ULONG_MAX, true };
	struct wanted chunk = { &chunks, ORDINARY | __GFP_COMP, CHUNK_ORDER, count, true };

	had = 0;
	if (!strcmp(what, "fill")) {
		take(&single);
		give(&singles, 0, false, count);
	} else if (!strcmp(what, "holes")) {
		give(&singles, 0, true, ULONG_MAX);
	} else if (!strcmp(what, "ordinary")) {
		take(&chunk);
	} else if (!strcmp(what, "atomic")) {
		chunk.gfp = GFP_ATOMIC | __GFP_NOWARN | __GFP_COMP;
		chunk.may_sleep = false;
		take_in_interrupt(&chunk);
	} else if (!strcmp(what, "room")) {
		give(&singles, 0, false, count);
	} else if (!strcmp(what, "chunks")) {
		give(&chunks, CHUNK_ORDER, false, ULONG_MAX);
	} else if (!strcmp(what, "single")) {
		return for_a_moment(GFP_ATOMIC | __GFP_NOWARN, count);
	} else if (!strcmp(what, "press")) {
		return for_a_moment(GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN, count);
	} else if (!strcmp(what, "free")) {
		give(&chunks, CHUNK_ORDER, false, ULONG_MAX);
		give(&singles, 0, false, ULONG_MAX);
	} else {
		return -EINVAL;
	}
	return 0;
}

static ssize_t trial_write(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	char words[64] = {}, what[16];
	unsigned long count = 0;
	int status;

	if (size >= sizeof(words) || copy_from_user(words, text, size) ||
	    sscanf(words, "%15s %lu", what, &count) < 1)
		return -EINVAL;
	mutex_lock(&running);
	status = trial(what, count);
	drain_all_pages(NULL);
	mutex_unlock(&running);
	return status ?: size;
}

static int trial_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "singles %lu\nchunks %lu\nhad %lu\n", singles.count, chunks.count,
		   had);
	return 0;
}

DEFINE_SHOW_STORE_ATTRIBUTE(trial);

FH_FILE(atomic_trial, 0600, trial_fops);
