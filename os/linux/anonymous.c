// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Ordinary anonymous memory of one control group, from our frames, in a kernel that knows nothing of it.
 *
 * The kernel's function tracing calls us at the entry of three functions; what 7.3 calls them is on the right:
 *
 *   vma_alloc_folio       a page for a fault, a copy on write or a fork: for tasks of the group       vma_alloc_folio_noprof
 *                         it is one of ours;
 *   free_unref_page       the last reference to a page is gone: one of ours comes to us, all others   __free_frozen_pages
 *                         go on as ever;
 *   free_unref_page_list  the same for many: ours are taken off the list (in 7.3 a batch), and the    free_unref_folios
 *                         kernel goes on with the rest.
 *
 * In between our page is any other page: it has one reference, it is charged to the group, and is on the kernel's lists. The
 * kernel may migrate, swap, merge or collapse it. Whatever it does, the page comes back by one of the two frees.
 *
 * While a frame is in use the two frees must not be left alone, so the module stays until all are back. Writing `stop` to
 * debugfs: freehold/anonymous serves no more pages, and has the kernel migrate those that are in use to memory of its own.
 * What is pinned cannot be migrated: then the write fails with EBUSY, all goes on but the serving, and it may be tried again.
 */
#include "fh.h"
#include "page.h"

#include <linux/fs.h>
#include <linux/module.h>

static char *anonymous = "";
module_param(anonymous, charp, 0444);
MODULE_PARM_DESC(anonymous, "the control group (of version 2, /NAME) whose anonymous memory is to be ours; none");

bool fh_anonymous_wanted(void)
{
	return *anonymous;
}

/* Kernels whose source was read for it: those between free pages in yet other ways. */
#if FH_BEFORE(6, 2) || (!FH_BEFORE(7, 3) && FH_BEFORE(7, 4))
#define FH_KNOWN_KERNEL
#endif
#if !defined(FH_KNOWN_KERNEL) || !defined(CONFIG_DYNAMIC_FTRACE_WITH_ARGS) || !defined(CONFIG_NUMA) ||  \
	!defined(CONFIG_CGROUPS) || !defined(CONFIG_CONTIG_ALLOC)

int fh_anonymous_start(void)
{
	return fh_anonymous_wanted() ? -EOPNOTSUPP : 0;
}

void fh_anonymous_serve(void)
{
}

const struct file_operations fh_anonymous_operations;

#else

#include <linux/cgroup.h>
#include <linux/ftrace.h>
#include <linux/highmem.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <linux/vmstat.h>

static unsigned int patience = 10;
module_param(patience, uint, 0644);
MODULE_PARM_DESC(patience, "for how many seconds anonymous memory is asked back before it is given up");

struct counters {
	u64 served, returned, elsewhere;
};
static DEFINE_PER_CPU(struct counters, counters);
/* Pages that came back in a state in which nobody may have them: kept for good. */
static atomic_t spoiled;
/* Tasks that are in the kernel's allocator for us, where they may sleep. */
static atomic_t asking;
/* When we had no memory: until the clock ticks nobody tries again. */
static unsigned long empty_at;
static struct cgroup *group;

static DEFINE_MUTEX(changing);
static enum { ENDED, HOOKED, SERVING, ENDING } state;

static struct counters total(void)
{
	struct counters sum = {};
	int cpu;

	/* Those that left before those that entered: what is in use may seem more than it is, and never less. */
	for_each_possible_cpu(cpu)
		sum.returned += READ_ONCE(per_cpu(counters, cpu).returned);
	smp_rmb();
	for_each_possible_cpu(cpu) {
		sum.served += READ_ONCE(per_cpu(counters, cpu).served);
		sum.elsewhere += READ_ONCE(per_cpu(counters, cpu).elsewhere);
	}
	return sum;
}

static struct page *take_page(gfp_t gfp)
{
	struct page *page;
	u64 pfn;

	if (READ_ONCE(empty_at) == jiffies)
		return NULL;
	if (fh_alloc(gfp, 0, &pfn)) {
		WRITE_ONCE(empty_at, jiffies);
		return NULL;
	}
	this_cpu_inc(counters.served);
	page = pfn_to_page(pfn);
	if (want_init_on_alloc(gfp) && !fh_planted("dirty"))
		clear_highpage(page);
	fh_page_is_allocated(page);
	return page;
}

/* Runs in place of vma_alloc_folio(). */
static noinline struct folio *serve(gfp_t gfp, int order, struct vm_area_struct *vma, unsigned long address, bool huge)
{
	struct page *page = take_page(gfp);
	struct folio *folio;

	if (likely(page))
		return page_folio(page);
	this_cpu_inc(counters.elsewhere);
	atomic_inc(&asking);
	folio = fh_vma_alloc_folio(gfp, order, vma, address, huge);
	atomic_dec(&asking);
	return folio;
}

/* What the kernel does before a page is free: its free_pages_prepare(), for one page that is no slab's and no table's. */
static bool prepare(struct page *page)
{
	struct folio *folio = page_folio(page);
	bool charged = false;

	if (unlikely(folio_test_mlocked(folio))) {
		__folio_clear_mlocked(folio);
		mod_zone_page_state(page_zone(page), NR_MLOCK, -1);
		count_vm_event(UNEVICTABLE_PGCLEARED);
	}
	if (folio_test_anon(folio))
		page->mapping = NULL;
#ifdef CONFIG_MEMCG
	charged = page->memcg_data;
#endif
	if (unlikely(charged || PageHWPoison(page) || !fh_page_is_unused(page, PAGE_FLAGS_CHECK_AT_FREE))) {
		atomic_inc(&spoiled);
		pr_err_ratelimited("BROKEN: page %lx is freed while in use: flags %lx, %d references\n", page_to_pfn(page),
				   *fh_page_flags(page), page_ref_count(page));
		return false;
	}
	page_cpupid_reset_last(page);
	*fh_page_flags(page) &= ~PAGE_FLAGS_CHECK_AT_PREP;
	page->private = 0;
	if (want_init_on_free())
		clear_highpage(page);
	return true;
}

/* A defect on purpose: one page is never given back. */
static bool keep_one(void)
{
	static atomic_t kept;

	return unlikely(fh_planted("keep")) && !atomic_xchg(&kept, 1);
}

static void give_pages(const u64 *pfns, size_t count)
{
	this_cpu_add(counters.returned, count);
	if (keep_one())
		count--;
	if (count)
		fh_free_bulk(pfns, count);
}

/* Runs in place of what frees one page. */
static noinline void take_back(struct page *page, unsigned int order)
{
	u64 pfn = page_to_pfn(page);

	if (prepare(page))
		give_pages(&pfn, 1);
}

/* The group's, or one below it; a child is born into its parent's. */
static bool is_of_group(void)
{
	bool is;

	rcu_read_lock();
	is = task_under_cgroup_hierarchy(current, group);
	rcu_read_unlock();
	return is;
}

/*
 * Private memory only: shared memory comes with a vma of no process. Who asks for particular nodes gets them from the
 * kernel, which knows about nodes.
 */
static void notrace at_alloc(unsigned long ip, unsigned long parent, struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	gfp_t gfp = (__force gfp_t)fh_ftrace_argument(fregs, 0);
	struct vm_area_struct *vma = (void *)fh_ftrace_argument(fregs, 2);

	if (READ_ONCE(state) != SERVING || (int)fh_ftrace_argument(fregs, 1) || !(gfp & __GFP_MOVABLE) || !vma->vm_mm || vma->vm_flags & VM_SHARED)
		return;
	if (vma->vm_policy || current->mempolicy || within_module(parent, THIS_MODULE) || !is_of_group())
		return;
	fh_ftrace_go_to(fregs, (unsigned long)serve);
}

static void notrace at_free(unsigned long ip, unsigned long parent, struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	if (fh_has(page_to_pfn((struct page *)fh_ftrace_argument(fregs, 0))) && !(unsigned int)fh_ftrace_argument(fregs, 1))
		fh_ftrace_go_to(fregs, (unsigned long)take_back);
}

/* Frames that come back together. */
struct coming {
	u64 pfns[32];
	size_t count;
};

static void comes_back(struct coming *coming, struct page *page)
{
	if (prepare(page))
		coming->pfns[coming->count++] = page_to_pfn(page);
	if (coming->count == ARRAY_SIZE(coming->pfns)) {
		give_pages(coming->pfns, coming->count);
		coming->count = 0;
	}
}

static void notrace at_free_many(unsigned long ip, unsigned long parent, struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct coming coming = {};
#if FH_BEFORE(6, 2)
	struct list_head *list = (void *)fh_ftrace_argument(fregs, 0);
	struct page *page, *next;

	list_for_each_entry_safe(page, next, list, lru) {
		if (!fh_has(page_to_pfn(page)))
			continue;
		list_del(&page->lru);
		comes_back(&coming, page);
	}
#else
	struct folio_batch *batch = (void *)fh_ftrace_argument(fregs, 0);
	unsigned int i, left = 0;

	for (i = 0; i < batch->nr; i++) {
		if (fh_has(folio_pfn(batch->folios[i])))
			comes_back(&coming, &batch->folios[i]->page);
		else
			batch->folios[left++] = batch->folios[i];
	}
	batch->nr = left;
#endif
	if (coming.count)
		give_pages(coming.pfns, coming.count);
}

/*
 * None of them asks for protection from recursion, which would pass over a free now and then: whatever they call frees
 * nothing of ours. Nor may tracing be switched off by sysctl while they are there.
 */
#if FH_BEFORE(6, 2)
#define ALLOC "vma_alloc_folio"
#define FREE_ONE "free_unref_page"
#define FREE_MANY "free_unref_page_list"
#else
#define ALLOC "vma_alloc_folio_noprof"
#define FREE_ONE "__free_frozen_pages"
#define FREE_MANY "free_unref_folios"
#endif
static struct hook {
	const char *name;
	struct ftrace_ops ops;
} hooks[] = {
	{ FREE_ONE, { .func = at_free, .flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT } },
	{ FREE_MANY, { .func = at_free_many, .flags = FTRACE_OPS_FL_PERMANENT } },
	{ ALLOC, { .func = at_alloc, .flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT } },
};
#define FREES 2
/* So many of them, from the first on, are there. */
static unsigned int hooked;

/*
 * The kernel waits until all who were in the hook, or in what it led to, have slept or left; who sleeps there is in the
 * kernel's allocator, and counted.
 */
static int unhook_but(unsigned int first)
{
	static atomic_t stuck;
	int status;

	for (; hooked > first; hooked--) {
		struct hook *hook = &hooks[hooked - 1];

		/* A defect on purpose: once the last one does not come off. */
		if (hooked == 1 && fh_planted("stuck") && !atomic_xchg(&stuck, 1))
			status = -EAGAIN;
		else
			status = unregister_ftrace_function(&hook->ops);
		if (status) {
			pr_err("BROKEN: %s is still hooked: %d\n", hook->name, status);
			return status;
		}
		ftrace_free_filter(&hook->ops);
	}
	return 0;
}

static int hook_next(void)
{
	struct hook *hook = &hooks[hooked];
	int status = ftrace_set_filter(&hook->ops, (unsigned char *)hook->name, strlen(hook->name), 1);

	/* A defect on purpose: all but the last one can be hooked, and that one has its filter already. */
	if (!status && hooked == ARRAY_SIZE(hooks) - 1 && fh_planted("unhookable"))
		status = -EBUSY;
	status = status ?: register_ftrace_function(&hook->ops);
	if (status) {
		pr_err("%s cannot be hooked: %d\n", hook->name, status);
		ftrace_free_filter(&hook->ops);
		return status;
	}
	hooked++;
	return 0;
}

int fh_anonymous_start(void)
{
	int status = 0;

	if (!fh_anonymous_wanted())
		return 0;
	group = cgroup_get_from_path(anonymous);
	if (IS_ERR(group)) {
		pr_err("there is no control group %s\n", anonymous);
		return PTR_ERR(group);
	}
	empty_at = jiffies - 1;
	/* Frees first: nothing of ours may be freed past them. */
	while (hooked < ARRAY_SIZE(hooks) && !status)
		status = hook_next();
	if (status) {
		unhook_but(0);
		cgroup_put(group);
		return status;
	}
	state = HOOKED;
	return 0;
}

void fh_anonymous_serve(void)
{
	if (state != HOOKED)
		return;
	__module_get(THIS_MODULE);
	WRITE_ONCE(state, SERVING);
}

static bool in_use(void)
{
	struct counters sum = total();

	return sum.served != sum.returned || atomic_read(&asking);
}

static bool block_in_use(unsigned long first)
{
	unsigned long pfn;

	for (pfn = first; pfn < first + FH_BLOCK_FRAMES; pfn++)
		if (page_count(pfn_to_page(pfn)))
			return true;
	return false;
}

/*
 * The kernel migrates what is in a range that it is to allocate. It cannot have the range, since what is free there is ours,
 * unless the block has just gone back to it. Each attempt empties all CPUs' lists first: on a busy machine all of them take
 * far longer than who waits has patience for. So it goes on where it was, past a block that cannot be emptied.
 */
static void migrate_all(unsigned long deadline)
{
	static unsigned long next;
	unsigned long number, first, seen;

	for (seen = 0; seen < FH_BLOCK_NUMBERS; seen++) {
		number = next++ % FH_BLOCK_NUMBERS;
		if (!test_bit(number, fh_block_map))
			continue;
		if (time_after(jiffies, deadline) || fatal_signal_pending(current))
			return;
		first = fh_first_pfn + (number << FH_BLOCK_ORDER);
		if (block_in_use(first) &&
		    !alloc_contig_range(first, first + FH_BLOCK_FRAMES, FH_CONTIG_MOVABLE, GFP_KERNEL | __GFP_NOWARN))
			free_contig_range(first, FH_BLOCK_FRAMES);
		cond_resched();
	}
}

static int stop(void)
{
	unsigned long deadline = jiffies + patience * HZ;
	int status;

	if (state == SERVING) {
		status = unhook_but(FREES);
		if (status)
			return status;
		WRITE_ONCE(state, ENDING);
	}
	while (in_use()) {
		migrate_all(deadline);
		if (!in_use())
			break;
		if (time_after(jiffies, deadline) || fatal_signal_pending(current))
			return -EBUSY;
		schedule_timeout_killable(HZ / 20);
	}
	/* A hook that stays leads into this module, which then stays, too. */
	status = unhook_but(0);
	if (status)
		return status;
	cgroup_put(group);
	state = ENDED;
	module_put(THIS_MODULE);
	return 0;
}

static ssize_t anonymous_write(struct file *file, const char __user *buffer, size_t length, loff_t *offset)
{
	char word[8] = {};
	int status = 0;

	if (length >= sizeof(word) || copy_from_user(word, buffer, length) || strcmp(strim(word), "stop"))
		return -EINVAL;
	mutex_lock(&changing);
	if (state != ENDED)
		status = stop();
	mutex_unlock(&changing);
	return status ?: length;
}

static ssize_t anonymous_read(struct file *file, char __user *buffer, size_t length, loff_t *offset)
{
	static const char *const states[] = { "ended", "hooked", "serving", "ending" };
	struct counters sum = total();
	char text[256];
	size_t size = scnprintf(text, sizeof(text), "state      %s\nserved     %llu\nreturned   %llu\nin use     %llu\n"
				"elsewhere  %llu\nspoiled    %d\n", states[state], sum.served, sum.returned,
				sum.served - sum.returned, sum.elsewhere, atomic_read(&spoiled));

	return simple_read_from_buffer(buffer, length, offset, text, size);
}

const struct file_operations fh_anonymous_operations = {
	.owner = THIS_MODULE,
	.read = anonymous_read,
	.write = anonymous_write,
};
#endif
