// SPDX-License-Identifier: GPL-2.0
/*
 * The page allocator's own calls, from every context, in all kernels. A number written to
 * /sys/kernel/debug/page_alloc_exercise is how many operations the CPUs make together; the write
 * ends with them, and fails where a page was somebody else's, or where nothing was done. Read, the
 * file counts what was allocated since the boot, by context.
 *
 *   thread     one a CPU: orders 0 to 10 of all three migratetypes, in bulk, with the reserves of
 *              atomic requests, of one node alone
 *   hardirq    a timer on each CPU: single pages that may not wait, and by alloc_pages_nolock()
 *   NMI        sent by the threads to the next CPU, into whatever that is doing: by
 *              alloc_pages_nolock()
 *
 * Whoever has a page has written its name into it, and looks for it before the page is freed.
 */
#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/hrtimer.h>
#include <linux/init.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/prandom.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include <asm/apic.h>
#include <asm/nmi.h>

enum context { THREAD, HARDIRQ, NMI, CONTEXTS };
static const char *const context_names[CONTEXTS] = { "thread", "hardirq", "nmi" };

struct slot {
	struct page *page;
	unsigned int order;
};

/* Somebody who allocates and frees: no two of them at once have the same. */
struct worker {
	struct slot *slots;
	unsigned int capacity;
	struct rnd_state random;
	u64 name, allocated, nothing, wrong;
};

struct exerciser {
	struct worker workers[CONTEXTS];
	struct hrtimer timer;
	struct task_struct *task;
	struct completion done;
	u64 operations;
	bool nmi_wanted;
};

static DEFINE_PER_CPU(struct exerciser, exercisers);
static DEFINE_MUTEX(running);
static u64 allocated[CONTEXTS], nothing[CONTEXTS];

#define THREAD_SLOTS 512
#define INTERRUPT_SLOTS 16
#define IN_BULK 24
#define PERIOD_NS (200 * NSEC_PER_USEC)

/* In its first page and its last one. */
static void write_name(struct worker *worker, struct slot *slot)
{
	u64 *first = page_address(slot->page),
	    *last = page_address(slot->page + (1 << slot->order) - 1);

	*first = *last = worker->name ^ (unsigned long)slot;
}

static void free_slot(struct worker *worker, struct slot *slot, bool nolock)
{
	u64 *first = page_address(slot->page),
	    *last = page_address(slot->page + (1 << slot->order) - 1);
	u64 name = worker->name ^ (unsigned long)slot;

	worker->wrong += *first != name || *last != name;
	if (nolock)
		free_pages_nolock(slot->page, slot->order);
	else
		__free_pages(slot->page, slot->order);
	slot->page = NULL;
}

static bool take(struct worker *worker, struct slot *slot, struct page *page, unsigned int order)
{
	*slot = (struct slot){ page, order };
	if (page)
		write_name(worker, slot);
	worker->allocated += !!page;
	worker->nothing += !page;
	return page;
}

static void thread_bulk(struct worker *worker)
{
	struct page *pages[IN_BULK] = {};
	unsigned int got = alloc_pages_bulk(GFP_KERNEL, IN_BULK, pages);

	worker->nothing += !got;
	for (unsigned int i = 0; i < got; i++) {
		struct slot slot;

		take(worker, &slot, pages[i], 0);
		free_slot(worker, &slot, false);
	}
}

/* Every fourth asks for a node, and may get no other's page. */
static struct page *thread_pages(struct worker *worker, u32 random, gfp_t gfp, unsigned int order)
{
	int node = random / 4 % nr_online_nodes;
	struct page *page;

	if (random % 4)
		return alloc_pages(gfp, order);
	page = alloc_pages_node(node, gfp | __GFP_THISNODE, order);
	worker->wrong += page && page_to_nid(page) != node;
	return page;
}

static void thread_step(struct worker *worker)
{
	static const gfp_t kinds[4] = {
		GFP_KERNEL, GFP_HIGHUSER_MOVABLE, GFP_KERNEL | __GFP_RECLAIMABLE, GFP_ATOMIC
	};
	u32 random = prandom_u32_state(&worker->random);
	struct slot *slot = &worker->slots[random % worker->capacity];
	gfp_t gfp = kinds[random >> 30] | __GFP_NOWARN | __GFP_NORETRY;
	unsigned int choice = random >> 16 & 1023, order = 0;

	if (slot->page)
		return free_slot(worker, slot, false);
	if (choice < 16)
		return thread_bulk(worker);
	if (choice < 300)
		order = choice % 5;
	else if (choice < 304)
		order = 9;
	else if (choice == 304)
		order = 10;
	if (order)
		gfp |= __GFP_COMP;
	take(worker, slot, thread_pages(worker, random, gfp, order), order);
}

/* For interrupts: half the time without waiting for any lock, in an NMI always. */
static void interrupt_step(struct worker *worker, bool nolock)
{
	u32 random = prandom_u32_state(&worker->random);
	struct slot *slot = &worker->slots[random % worker->capacity];

	nolock |= random >> 31;
	if (slot->page)
		free_slot(worker, slot, nolock);
	else if (nolock)
		take(worker, slot, alloc_pages_nolock(0, NUMA_NO_NODE, 0), 0);
	else
		take(worker, slot, alloc_pages(GFP_ATOMIC | __GFP_NOWARN, 0), 0);
}

static enum hrtimer_restart timer_step(struct hrtimer *timer)
{
	interrupt_step(&this_cpu_ptr(&exercisers)->workers[HARDIRQ], false);
	hrtimer_forward_now(timer, ns_to_ktime(PERIOD_NS));
	return HRTIMER_RESTART;
}

static int nmi_step(unsigned int type, struct pt_regs *regs)
{
	struct exerciser *self = this_cpu_ptr(&exercisers);

	if (!READ_ONCE(self->nmi_wanted))
		return NMI_DONE;
	interrupt_step(&self->workers[NMI], true);
	/* Whoever finds it false may free the slots. */
	smp_store_release(&self->nmi_wanted, false);
	return NMI_HANDLED;
}

/* One at a time: whoever gets two at once sees one. */
static void send_nmi(unsigned int from)
{
	unsigned int cpu = cpumask_next_wrap(from, cpu_online_mask);

	if (cpu < nr_cpu_ids && !xchg(&per_cpu(exercisers, cpu).nmi_wanted, true))
		__apic_send_IPI(cpu, NMI_VECTOR);
}

static int exercise_on_this_cpu(void *unused)
{
	struct exerciser *self = this_cpu_ptr(&exercisers);

	/*
	 * A hard interrupt here, but not where zone->lock may sleep (PREEMPT_RT): an ordinary free
	 * takes it.
	 */
	hrtimer_setup(&self->timer, timer_step, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED);
	hrtimer_start(&self->timer, ns_to_ktime(PERIOD_NS), HRTIMER_MODE_REL_PINNED);
	for (u64 done = 0; done < self->operations; done++) {
		thread_step(&self->workers[THREAD]);
		if (done % 512 == 0)
			send_nmi(smp_processor_id());
		if (done % 64 == 0)
			cond_resched();
	}
	hrtimer_cancel(&self->timer);
	complete(&self->done);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

static int worker_start(struct worker *worker, unsigned int number, unsigned int capacity)
{
	*worker = (struct worker){ .capacity = capacity, .name = (u64)(number + 1) << 48 };
	worker->slots = kcalloc(capacity, sizeof(*worker->slots), GFP_KERNEL);
	prandom_seed_state(&worker->random, number + 1);
	return worker->slots ? 0 : -ENOMEM;
}

static u64 worker_end(struct worker *worker, enum context context)
{
	for (unsigned int i = 0; worker->slots && i < worker->capacity; i++)
		if (worker->slots[i].page)
			free_slot(worker, &worker->slots[i], false);
	kfree(worker->slots);
	worker->slots = NULL;
	allocated[context] += worker->allocated;
	nothing[context] += worker->nothing;
	return worker->wrong;
}

static int start_on(unsigned int cpu, u64 operations)
{
	struct exerciser *self = per_cpu_ptr(&exercisers, cpu);
	struct task_struct *task;

	self->task = NULL;
	self->operations = operations;
	init_completion(&self->done);
	for (int context = 0; context < CONTEXTS; context++)
		if (worker_start(&self->workers[context], cpu * CONTEXTS + context,
				 context == THREAD ? THREAD_SLOTS : INTERRUPT_SLOTS))
			return -ENOMEM;
	task = kthread_create_on_cpu(exercise_on_this_cpu, NULL, cpu, "exercise/%u");
	if (IS_ERR(task))
		return PTR_ERR(task);
	self->task = task;
	return 0;
}

/* CPUs stay: the caller holds them. */
static int exercise(u64 operations)
{
	unsigned int cpu;
	u64 wrong = 0, before = allocated[THREAD] + nothing[THREAD];
	int status = 0;

	for_each_online_cpu(cpu)
		status = status ?: start_on(cpu, div_u64(operations, num_online_cpus()));
	for_each_online_cpu(cpu)
		if (!status)
			wake_up_process(per_cpu(exercisers, cpu).task);
	/* Whoever is stopped before it has begun does nothing. */
	for_each_online_cpu(cpu)
		if (!status)
			wait_for_completion(&per_cpu(exercisers, cpu).done);
	for_each_online_cpu(cpu)
		if (per_cpu(exercisers, cpu).task)
			kthread_stop(per_cpu(exercisers, cpu).task);
	/* No NMI is on its way any more. */
	for_each_online_cpu(cpu)
		while (!status && smp_load_acquire(&per_cpu(exercisers, cpu).nmi_wanted))
			schedule_timeout_uninterruptible(1);
	for_each_online_cpu(cpu)
		for (int context = 0; context < CONTEXTS; context++)
			wrong += worker_end(&per_cpu(exercisers, cpu).workers[context], context);
	WARN(wrong, "%llu pages were somebody else's\n", wrong);
	if (!status && operations >= THREAD_SLOTS && before == allocated[THREAD] + nothing[THREAD])
		return -ENODATA;
	return status ?: wrong ? -EIO : 0;
}

static ssize_t exercise_write(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	u64 operations;
	int status = kstrtou64_from_user(text, size, 0, &operations);

	if (status)
		return status;
	mutex_lock(&running);
	cpus_read_lock();
	status = exercise(operations);
	cpus_read_unlock();
	mutex_unlock(&running);
	return status ?: size;
}

static int exercise_show(struct seq_file *file, void *unused)
{
	for (int context = 0; context < CONTEXTS; context++)
		seq_printf(file, "exercised_%s %llu\nexercised_%s_nothing %llu\n",
			   context_names[context], allocated[context],
			   context_names[context], nothing[context]);
	return 0;
}

DEFINE_SHOW_STORE_ATTRIBUTE(exercise);

static int __init exercise_start(void)
{
	int status = register_nmi_handler(NMI_LOCAL, nmi_step, 0, "page_alloc_exercise");

	if (!status)
		debugfs_create_file("page_alloc_exercise", 0600, NULL, NULL, &exercise_fops);
	return status;
}
late_initcall(exercise_start);
