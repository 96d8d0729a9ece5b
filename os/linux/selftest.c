// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The self-test: everybody allocates and frees, from every context, and each frame says whose it is.
 *
 * A shadow of one word a frame tells who has it: an allocation must find the word empty, a free must find its own tag. The
 * first and the last word of each frame's memory are stamped with frame number and tag as well, so that a frame that somebody
 * else writes to is found. Every eighth allocation is left in a mailbox, for whoever comes by next to free it.
 *
 * It is run by writing the number of operations to debugfs: freehold/selftest. The write fails with EIO where the test does.
 */
#include "selftest.h"

#include <linux/debugfs.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/prandom.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#define MAILBOXES 1024
#define BULK 16
/* Operations that last long enough for everything that disturbs them. */
#define ENOUGH 1000000

static char *plant = "";
/* Not to be written later: whoever reads it takes no lock. */
module_param(plant, charp, 0444);
MODULE_PARM_DESC(plant, "a defect to be found: twice, lose, scribble by the self-test; dirty, keep by anonymous memory");

static DEFINE_MUTEX(running);
static u32 *shadow;
static atomic64_t mail[MAILBOXES];
static atomic_t failures, tags, threads_running;
static atomic64_t operations_left;
static bool stopped, planted;
static char report[512];

/* A chunk in one word: frame number, order, and the tag that its frames' shadows bear. */
#define TAG_BITS 27
#define CHUNK(pfn, order, tag) ((u64)(tag) << 37 | (u64)(order) << 32 | (pfn))
#define CHUNK_PFN(chunk) ((chunk) & 0xffffffff)
#define CHUNK_ORDER(chunk) ((chunk) >> 32 & 31)
#define CHUNK_TAG(chunk) ((u32)((chunk) >> 37))

#define FAIL(format, ...) do {						\
	if (atomic_inc_return(&failures) <= 10)				\
		pr_err("FAIL: " format "\n", ##__VA_ARGS__);		\
	WRITE_ONCE(stopped, true);					\
} while (0)

bool fh_selftest_stopped(void)
{
	return READ_ONCE(stopped);
}

static u64 *first_word(u64 pfn)
{
	return page_address(pfn_to_page(pfn));
}

static u64 *last_word(u64 pfn)
{
	return first_word(pfn) + PAGE_SIZE / sizeof(u64) - 1;
}

/* What was allocated becomes somebody's. */
static u64 take(u64 pfn, unsigned int order)
{
	u32 tag = (atomic_inc_return(&tags) & ((1u << TAG_BITS) - 1)) ?: 1;
	u64 i, frame;

	for (i = 0; i < 1ul << order; i++) {
		u32 old;

		frame = pfn + i;
		if (frame < fh_first_pfn || frame >= fh_end_pfn) {
			FAIL("frame %llu of a chunk of order %u is nowhere", frame, order);
			break;
		}
		old = xchg(&shadow[frame - fh_first_pfn], tag);
		if (old)
			FAIL("frame %llu was handed out twice", frame);
		*first_word(frame) = *last_word(frame) = frame << TAG_BITS | tag;
	}
	return CHUNK(pfn, order, tag);
}

/* What is about to be freed is nobody's. */
static void leave(u64 chunk)
{
	u64 i, frame, tag = CHUNK_TAG(chunk);

	for (i = 0; i < 1ul << CHUNK_ORDER(chunk); i++) {
		frame = CHUNK_PFN(chunk) + i;
		if (*first_word(frame) != (frame << TAG_BITS | tag) || *last_word(frame) != (frame << TAG_BITS | tag))
			FAIL("somebody wrote to frame %llu", frame);
		if (xchg(&shadow[frame - fh_first_pfn], 0) != tag)
			FAIL("frame %llu had another owner", frame);
	}
}

static void give_back(struct fh_worker *worker, u64 chunk)
{
	u64 pfn = CHUNK_PFN(chunk);
	unsigned int order = CHUNK_ORDER(chunk);

	leave(chunk);
	/* Parts of a chunk may be freed by themselves. */
	if (order && worker->random & 1 << 20) {
		order--;
		if (fh_free(pfn + (1ul << order), order))
			FAIL("the upper half of a chunk at %llu was not freed", pfn);
		worker->operations++;
	}
	if (fh_free(pfn, order))
		FAIL("a chunk of order %u at %llu was not freed", order, pfn);
	worker->operations++;
}

static u64 random(struct fh_worker *worker)
{
	worker->random ^= worker->random << 13;
	worker->random ^= worker->random >> 7;
	worker->random ^= worker->random << 17;
	return worker->random;
}

/* Mostly single frames, now and then a run, rarely a block. */
static unsigned int random_order(u64 number)
{
	unsigned int kind = number >> 8 & 1023;

	if (kind < 880)
		return 0;
	if (kind < 1008)
		return 1 + kind % 5;
	return kind < 1021 ? 6 + kind % 3 : 9;
}

static gfp_t gfp_of(const struct fh_worker *worker)
{
	return worker->atomic ? GFP_ATOMIC : GFP_KERNEL;
}

static void allocate_bulk(struct fh_worker *worker)
{
	u64 pfns[BULK];
	size_t i, count = fh_alloc_bulk(gfp_of(worker), BULK, pfns);

	for (i = 0; i < count; i++)
		worker->slots[worker->held++] = take(pfns[i], 0);
	worker->operations += count;
	worker->bulk += count;
}

static void allocate(struct fh_worker *worker, u64 number)
{
	gfp_t gfp = gfp_of(worker) | (number & 2 ? __GFP_MOVABLE : 0);
	unsigned int order = random_order(number);
	u64 pfn, chunk;

	/* A block is stamped for longer than an interrupt should last. */
	if (worker->atomic)
		order = min(order, 3u);
	if ((number >> 24) % 64 == 0 && worker->held + BULK <= worker->capacity)
		return allocate_bulk(worker);
	if (fh_alloc(gfp, order, &pfn)) {
		worker->failed++;
		return;
	}
	worker->operations++;
	chunk = take(pfn, order);
	if (number >> 40 & 7)
		worker->slots[worker->held++] = chunk;
	else
		chunk = atomic64_xchg(&mail[number >> 44 & (MAILBOXES - 1)], chunk);
	if (!(number >> 40 & 7) && chunk)
		give_back(worker, chunk);
}

void fh_worker_step(struct fh_worker *worker)
{
	u64 number = random(worker);
	unsigned int i;

	if (worker->held < worker->capacity && (number & 1 || !worker->held))
		return allocate(worker, number);
	i = (number >> 32) % worker->held;
	give_back(worker, worker->slots[i]);
	worker->slots[i] = worker->slots[--worker->held];
}

int fh_worker_init(struct fh_worker *worker, unsigned int number, unsigned int capacity)
{
	worker->slots = fh_planted("starved") ? NULL : vmalloc(capacity * sizeof(u64));
	worker->capacity = capacity;
	worker->random = 0x9e3779b97f4a7c15 * (number + 1);
	return worker->slots ? 0 : -ENOMEM;
}

void fh_worker_end(struct fh_worker *worker)
{
	while (worker->held)
		give_back(worker, worker->slots[--worker->held]);
	vfree(worker->slots);
	worker->slots = NULL;
}

bool fh_planted(const char *defect)
{
	return sysfs_streq(plant, defect);
}

/* A defect on purpose, once. */
static void plant_defect(struct fh_worker *worker)
{
	u64 pfn;

	if (!*plant || worker->held < 2 || xchg(&planted, true))
		return;
	pfn = CHUNK_PFN(worker->slots[0]);
	if (fh_planted("twice"))
		fh_free(pfn, CHUNK_ORDER(worker->slots[0]));
	else if (fh_planted("lose"))
		worker->slots[0] = worker->slots[--worker->held];
	else if (fh_planted("scribble"))
		*last_word(pfn) ^= 1;
}

static int work(void *argument)
{
	struct fh_worker *worker = argument;
	u64 before = 0;

	while (!fh_selftest_stopped()) {
		u64 i;

		for (i = 0; i < 256; i++)
			fh_worker_step(worker);
		if (atomic64_sub_return(worker->operations - before, &operations_left) <= 0)
			break;
		before = worker->operations;
		if (before > 4096)
			plant_defect(worker);
		/* Another CPU now and then, so that what was allocated here is freed there. */
		if (worker->random % 7 == 0)
			set_cpus_allowed_ptr(current, cpumask_of(worker->random % nr_cpu_ids));
		cond_resched();
	}
	atomic_dec(&threads_running);
	return 0;
}

static int run_threads(struct fh_worker *workers, unsigned int threads, unsigned int capacity)
{
	struct task_struct **tasks = kcalloc(threads, sizeof(*tasks), GFP_KERNEL);
	unsigned int i, started = 0;
	int status = tasks ? 0 : -ENOMEM;

	for (i = 0; i < threads && !status; i++)
		status = fh_worker_init(&workers[i], i, capacity);
	for (i = 0; i < threads && !status; i++) {
		tasks[i] = kthread_create(work, &workers[i], "freehold/%u", i);
		if (IS_ERR(tasks[i])) {
			status = PTR_ERR(tasks[i]);
			break;
		}
		get_task_struct(tasks[i]);
		started++;
		atomic_inc(&threads_running);
		wake_up_process(tasks[i]);
	}
	while (atomic_read(&threads_running))
		schedule_timeout_uninterruptible(HZ / 50);
	for (i = 0; i < started; i++) {
		kthread_stop(tasks[i]);
		put_task_struct(tasks[i]);
	}
	kfree(tasks);
	return status;
}

/* After everybody has given back everything. */
static void check_the_end(void)
{
	u64 i, free, managed, lost = 0;
	freehold_error error;

	for (i = 0; i < MAILBOXES; i++) {
		u64 chunk = atomic64_xchg(&mail[i], 0);

		if (!chunk)
			continue;
		leave(chunk);
		fh_free(CHUNK_PFN(chunk), CHUNK_ORDER(chunk));
	}
	for (i = 0; i < fh_end_pfn - fh_first_pfn; i++)
		lost += !!shadow[i];
	if (lost)
		FAIL("%llu frames were never freed", lost);
	if (fh_frames(&free, &managed) || free != managed)
		FAIL("%llu of %llu frames are free at the end", free, managed);
	if (FH_ALONE(freehold_validate(fh_allocators[0], &error)))
		FAIL("the allocator's own check: %s", error.message);
	if (atomic64_read(&fh_late_double_frees))
		FAIL("%lld double frees", atomic64_read(&fh_late_double_frees));
	if (atomic64_read(&fh_refused))
		FAIL("%lld calls were refused", atomic64_read(&fh_refused));
}

/* Whatever is to disturb the threads must have done so: a test that nobody disturbed has not shown much. */
static void check_disturbers(u64 operations, const struct fh_context_counts *counts)
{
	if (operations < ENOUGH)
		return;
	if (!counts->softirq || !counts->hardirq || !counts->irq_work)
		FAIL("no operation in softirqs, hardirqs or irq_work");
	if (nr_cpu_ids > 1 && !counts->hotplugs)
		FAIL("no CPU went and came back");
	if (!counts->given || !counts->drains)
		FAIL("no block was given back, or nobody drained");
}

static int run(u64 operations)
{
	unsigned int threads = num_online_cpus(), i;
	unsigned int capacity = min_t(u64, 4096, fh_memory_blocks() * FH_BLOCK_FRAMES / (12 * threads));
	struct fh_worker *workers = kcalloc(threads, sizeof(*workers), GFP_KERNEL);
	struct fh_context_counts counts = {};
	u64 tasks = 0, failed = 0, interrupted = fh_interrupted(), started = ktime_get_ns();
	int status = -ENOMEM;

	atomic_set(&failures, 0);
	atomic64_set(&operations_left, operations);
	stopped = planted = false;
	shadow = vzalloc((fh_end_pfn - fh_first_pfn) * sizeof(*shadow));
	if (workers && shadow)
		status = fh_contexts_start(64);
	if (!status) {
		status = run_threads(workers, threads, capacity);
		WRITE_ONCE(stopped, true);
		fh_contexts_stop();
		fh_context_counts(&counts);
		for (i = 0; i < threads; i++) {
			if (workers[i].slots)
				fh_worker_end(&workers[i]);
			tasks += workers[i].operations;
			failed += workers[i].failed;
		}
		check_the_end();
		if (!status && !atomic_read(&failures))
			check_disturbers(operations, &counts);
		if (!status && atomic_read(&failures))
			status = -EIO;
	}
	vfree(shadow);
	kfree(workers);
	scnprintf(report, sizeof(report),
		  "selftest: %s: %llu operations on %u CPUs in %llu ms: task %llu, softirq %llu, hardirq %llu, irq_work %llu; "
		  "%llu inside another call, %llu + %llu without memory; %llu hotplugs, %llu blocks given back, %llu drains; "
		  "%d failures\n",
		  status ? "FAILED" : "passed", tasks + counts.softirq + counts.hardirq + counts.irq_work, threads,
		  (ktime_get_ns() - started) / 1000000, tasks, counts.softirq, counts.hardirq, counts.irq_work,
		  fh_interrupted() - interrupted, failed, counts.failed, counts.hotplugs, counts.given, counts.drains,
		  atomic_read(&failures));
	pr_info("%s", report);
	return status;
}

static ssize_t selftest_write(struct file *file, const char __user *buffer, size_t length, loff_t *offset)
{
	u64 operations;
	int status = kstrtou64_from_user(buffer, length, 0, &operations);

	if (status)
		return status;
	mutex_lock(&running);
	status = run(operations);
	mutex_unlock(&running);
	return status ?: length;
}

static ssize_t selftest_read(struct file *file, char __user *buffer, size_t length, loff_t *offset)
{
	return simple_read_from_buffer(buffer, length, offset, report, strlen(report));
}

const struct file_operations fh_selftest_operations = {
	.owner = THIS_MODULE,
	.read = selftest_read,
	.write = selftest_write,
};
