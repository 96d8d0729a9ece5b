// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The benchmark's workloads on 1 to 4 CPUs at once, as linux-alloc-bench has them: many frames taken and given back in order
 * (bulk), one at a time (repeat), many given back at random (rand).
 *
 * Timed from the start of all threads to the end of the last. Under -icount the clock counts the instructions of all CPUs
 * together, so that a figure is what an operation costs the machine, waiting for locks included.
 */
#include "sides.h"
#include "bench.h"

#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/vmalloc.h>

/* For all CPUs together: 32 MiB, less than either side has. */
#define FRAMES 8192
#define REPEATS 20000

enum work { BULK, REPEAT, RAND, WORKS };
static const char *const names[WORKS][FH_BENCH_CPUS] = {
	{ "bulk, 1 CPU", "bulk, 2 CPUs", "bulk, 3 CPUs", "bulk, 4 CPUs" },
	{ "repeat, 1 CPU", "repeat, 2 CPUs", "repeat, 3 CPUs", "repeat, 4 CPUs" },
	{ "rand, 1 CPU", "rand, 2 CPUs", "rand, 3 CPUs", "rand, 4 CPUs" },
};

struct crew {
	enum work work;
	/* Operations of each. */
	unsigned int count;
	struct completion start, end;
	atomic_t left;
	u64 ended;
	bool failed;
};

struct worker {
	struct crew *crew;
	u64 *pfns;
	u32 *order;
};

static __always_inline bool repeat(const struct fh_side *side, unsigned int count)
{
	while (count--) {
		u64 pfn = side->alloc(0);

		if (pfn == FH_NOTHING)
			return false;
		side->free(pfn, 0);
	}
	return true;
}

static __always_inline bool take_and_give(const struct fh_side *side, const struct worker *worker, unsigned int count, bool random)
{
	unsigned int i, taken;

	for (taken = 0; taken < count; taken++) {
		worker->pfns[taken] = side->alloc(0);
		if (worker->pfns[taken] == FH_NOTHING)
			break;
	}
	for (i = 0; i < count; i++) {
		unsigned int at = random ? worker->order[i] : i;

		if (at < taken)
			side->free(worker->pfns[at], 0);
	}
	return taken == count;
}

static __always_inline int work(const struct fh_side *side, const struct worker *worker)
{
	struct crew *crew = worker->crew;
	bool well;

	wait_for_completion(&crew->start);
	if (crew->work == REPEAT)
		well = repeat(side, crew->count);
	else
		well = take_and_give(side, worker, crew->count, crew->work == RAND);
	if (!well)
		crew->failed = true;
	if (atomic_dec_and_test(&crew->left)) {
		crew->ended = ktime_get_ns();
		complete(&crew->end);
	}
	return 0;
}

/* The side's functions are inlined into its thread. */
#define SIDE(prefix, text) \
	static int work_##prefix(void *worker) \
	{ \
		static const struct fh_side side = { text, prefix##_alloc, prefix##_free }; \
		return work(&side, worker); \
	}
SIDE(kernel, "kernel")
SIDE(ours, "freehold")
SIDE(paged, "freehold with page state")

static const struct {
	const char *name;
	int (*thread)(void *worker);
} sides[] = { { "kernel", work_kernel }, { "freehold", work_ours }, { "freehold with page state", work_paged } };

static bool run(unsigned int side, enum work work, unsigned int cpus, struct worker *workers)
{
	struct task_struct *threads[FH_BENCH_CPUS];
	struct crew crew = { .work = work, .count = (work == REPEAT ? REPEATS : FRAMES) / cpus };
	unsigned int i;
	u64 started;

	init_completion(&crew.start);
	init_completion(&crew.end);
	atomic_set(&crew.left, cpus);
	for (i = 0; i < cpus; i++) {
		workers[i].crew = &crew;
		threads[i] = kthread_create_on_cpu(sides[side].thread, &workers[i], i, "fh_bench/%u");
		if (IS_ERR(threads[i])) {
			/* Those that have not been woken never run. */
			while (i--) {
				kthread_stop(threads[i]);
				put_task_struct(threads[i]);
			}
			return false;
		}
		get_task_struct(threads[i]);
	}
	for (i = 0; i < cpus; i++)
		wake_up_process(threads[i]);
	started = ktime_get_ns();
	complete_all(&crew.start);
	wait_for_completion(&crew.end);
	/* The crew lies on this stack: until the last of them has left it. */
	for (i = 0; i < cpus; i++) {
		kthread_stop(threads[i]);
		put_task_struct(threads[i]);
	}
	fh_bench_note(names[work][cpus - 1], sides[side].name, crew.ended - started, (u64)crew.count * cpus);
	return !crew.failed;
}

static void shuffle(u32 *order, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		order[i] = i;
	for (i = count - 1; i > 0; i--) {
		/* Not within swap(), which looks at it twice. */
		unsigned int other = get_random_u32() % (i + 1);

		swap(order[i], order[other]);
	}
}

/* One round of all of it on CPUs 0 up to as many as there are, 4 at most. */
bool fh_bench_several(void)
{
	struct worker workers[FH_BENCH_CPUS] = {};
	unsigned int cpus = min_t(unsigned int, num_online_cpus(), FH_BENCH_CPUS), n, work, side, i;
	bool well = true;

	for (i = 0; i < cpus && well; i++) {
		workers[i].pfns = vmalloc(FRAMES * sizeof(u64));
		workers[i].order = vmalloc(FRAMES * sizeof(u32));
		well = workers[i].pfns && workers[i].order;
	}
	for (n = 1; n <= cpus; n++) {
		for (i = 0; i < n && well; i++)
			shuffle(workers[i].order, FRAMES / n);
		for (work = 0; work < WORKS; work++)
			for (side = 0; side < ARRAY_SIZE(sides) && well; side++)
				well = run(side, work, n, workers);
	}
	for (i = 0; i < cpus; i++) {
		vfree(workers[i].pfns);
		vfree(workers[i].order);
	}
	return well;
}
