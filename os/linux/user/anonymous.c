/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Ordinary anonymous memory: a tree of processes and threads touches, forks, copies, swaps and unmaps it, and compilers
 * compile; first in a control group whose memory is the kernel's, then in the one whose memory is Freehold's. Counts what
 * the kernel's zone lock had to do with it. Then Freehold is to get back all that is in use: what is pinned keeps it from
 * it, the rest is migrated under the eyes of its owner. Usage: anonymous PAGES.
 * Ends with 0 where all was as it should be.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

#define PROCESSES 4
#define THREADS 4
#define COMPILERS 2
#define PAGE 4096ul
#define PAGES 1024ul
#define REGION (PAGES * PAGE)
#define GROUPS "/sys/fs/cgroup"
#define OURS "/sys/kernel/debug/freehold/anonymous"
#define STATISTICS "/sys/kernel/debug/freehold/statistics"
#define TRACES "/sys/kernel/tracing/instances/"
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
/* Tenths of a second, for a machine that is busy. */
#define LONG 600
/* Seconds for one of the parts, and more for more pages. */
#define LIMIT 600

/* Turns of the process that presses for memory, of which the tree must have seen some. */
#define TURNS 3

/* Of all processes: what they have touched, what was wrong, what is waited for and since when, whole turns of pressure. */
static struct {
	_Atomic long touched, wrong;
	_Atomic(const char *) waiting;
	_Atomic uint64_t since;
	_Atomic long turns;
} *all;
static long wanted;
/* Whether huge pages are made, too: to make room for one the kernel empties its per-CPU lists, which would be counted. */
static int collapse;

static void fail(const char *what)
{
	if (all->wrong++ < 10)
		fprintf(stderr, "FAIL: anonymous: %s (%s)\n", what, strerror(errno));
}

/* What is begun now; nothing of it may last for ever. */
static void wait_for(const char *what)
{
	all->since = now();
	all->waiting = what;
}

/*
 * Looks on, and ends the machine where something takes too long, even within the kernel. Says what it was, where who sleeps
 * there does so, and what the kernel's log says.
 */
static pid_t watch(void)
{
	uint64_t limit = LIMIT + wanted / 500;
	pid_t child = fork();

	if (child)
		return child;
	while (now() - all->since < limit * 1000000000)
		sleep(1);
	fprintf(stderr, "FAIL: anonymous: %s took more than %llu s: %ld pages touched, %ld in use, %ld turns of pressure\n",
		all->waiting, (unsigned long long)limit, all->touched, number_of(OURS, "in use"), all->turns);
	if (system("echo w > /proc/sysrq-trigger; dmesg | tail -n 100") < 0)
		perror("dmesg");
	execl("/finish", "finish", "17", NULL);
	_exit(1);
}

static char *map(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		fail("mmap");
		_exit(1);
	}
	return memory;
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_TRUNC);

	if (file < 0 || write(file, text, strlen(text)) < 0) {
		fprintf(stderr, "FAIL: anonymous: %s to %s: %s\n", text, path, strerror(errno));
		all->wrong++;
	}
	close(file);
}

/* A page bears its stamp in its first and last word. */
static void write_pages(char *memory, size_t first, size_t end, uint64_t stamp)
{
	for (; first < end; first++) {
		uint64_t *words = (uint64_t *)(memory + first * PAGE);

		words[0] = words[PAGE / 8 - 1] = stamp ? stamp + first : 0;
	}
}

static void check_pages(const char *memory, size_t first, size_t end, uint64_t stamp, const char *what)
{
	for (; first < end; first++) {
		const uint64_t *words = (const uint64_t *)(memory + first * PAGE);
		uint64_t expected = stamp ? stamp + first : 0;

		if (words[0] != expected || words[PAGE / 8 - 1] != expected) {
			fail(what);
			return;
		}
	}
}

/* Parent and child write to the same pages, each to its own copy. */
static void fork_and_copy(char *memory, uint64_t stamp)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		check_pages(memory, 0, PAGES, stamp, "a child does not see its parent's memory");
		write_pages(memory, 0, PAGES / 2, stamp + 1);
		check_pages(memory, 0, PAGES / 2, stamp + 1, "a child's copy is wrong");
		check_pages(memory, PAGES / 2, PAGES, stamp, "a child sees what its parent wrote later");
		_exit(0);
	}
	write_pages(memory, 0, PAGES / 4, stamp);
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		fail("a child did not end well");
	check_pages(memory, 0, PAGES, stamp, "a parent sees what its child wrote");
	all->touched += PAGES / 2;
}

/* A process that is killed in the middle of it. */
static void kill_one(void)
{
	pid_t child = fork();

	if (child == 0)
		for (;;) {
			char *memory = map(REGION);

			write_pages(memory, 0, PAGES, 7);
			munmap(memory, REGION);
		}
	usleep(10000);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* What else may happen to memory; where it is afterwards. */
static char *disturb(char *memory, uint64_t stamp, unsigned int kind)
{
	char *aligned = (char *)(((uintptr_t)memory + REGION / 2 - 1) & -(REGION / 2)), *moved;

	switch (kind) {
	case 0:
		fork_and_copy(memory, stamp);
		break;
	case 1:
		madvise(memory, REGION / 2, MADV_DONTNEED);
		check_pages(memory, 0, PAGES / 2, 0, "a page was not cleared after MADV_DONTNEED");
		write_pages(memory, 0, PAGES / 2, stamp);
		break;
	case 2:
		moved = mremap(memory, REGION, 2 * REGION, MREMAP_MAYMOVE);
		if (moved == MAP_FAILED)
			fail("mremap");
		else
			memory = mremap(moved, 2 * REGION, REGION, 0);
		break;
	case 3:
		/* To the swap area, and back by the faults of the check. */
		madvise(memory, REGION / 4, MADV_PAGEOUT);
		break;
	case 4:
		mprotect(memory, REGION, PROT_READ);
		check_pages(memory, 0, PAGES, stamp, "memory that is read only is wrong");
		mprotect(memory, REGION, PROT_READ | PROT_WRITE);
		/* Fails where there is no huge page to be had. */
		if (collapse)
			madvise(aligned, REGION / 2, MADV_COLLAPSE);
		break;
	default:
		kill_one();
	}
	check_pages(memory, 0, PAGES, stamp, "memory is not what was written");
	return memory;
}

static void *work(void *argument)
{
	uint64_t self = (uintptr_t)argument, round;

	/* Once at least, whoever was faster: else it is chance whether anybody swaps. */
	for (round = self; (round == self || all->touched < wanted || (collapse && all->turns < TURNS)) && !all->wrong; round++) {
		uint64_t stamp = self << 48 | (round + 1) << 24;
		char *memory = map(REGION);

		check_pages(memory, 0, PAGES, 0, "a page was not cleared");
		write_pages(memory, 0, PAGES, stamp);
		check_pages(memory, 0, PAGES, stamp, "somebody else wrote to a page");
		all->touched += PAGES;
		memory = disturb(memory, stamp, round % 6);
		/* In two parts: what has been unmapped may be another thread's at once. */
		munmap(memory, PAGE * 7);
		munmap(memory + PAGE * 7, REGION - PAGE * 7);
	}
	return NULL;
}

static void one_process(uintptr_t number)
{
	pthread_t threads[THREADS];
	uintptr_t i;

	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)(number * THREADS + i + 1)))
			fail("pthread_create");
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* Runs it in so many processes; whether all ended well. */
static void in_processes(void (*body)(uintptr_t), uintptr_t count)
{
	uintptr_t i;
	int status;

	for (i = 0; i < count; i++)
		if (fork() == 0) {
			body(i);
			_exit(0);
		}
	for (i = 0; i < count; i++)
		if (wait(&status) < 0 || status)
			fail("a process did not end well");
}

/* Its memory is what is tested, by what it says in the end. */
static void one_compiler(uintptr_t number)
{
	char output[] = "/tmp/0.s";

	output[5] += number;
	execl("/cc1", "cc1", "-fpreprocessed", "-quiet", "-O2", "compile.i", "-o", output, NULL);
	fail("the compiler does not start");
	_exit(1);
}

static void tree(const char *group)
{
	(void)group;
	in_processes(one_process, PROCESSES);
}

static void compile(const char *group)
{
	(void)group;
	in_processes(one_compiler, COMPILERS);
}

static void compare_compiled(void)
{
	char command[64];
	int i;

	for (i = 0; i < COMPILERS; i++) {
		snprintf(command, sizeof(command), "cmp /tmp/%d.s /compiled.s && rm /tmp/%d.s", i, i);
		if (system(command))
			fail("what was compiled is not what the same compiler makes elsewhere");
	}
}

struct result {
	long locked, movable, drained, served, touched, swapped;
};

/* A process that enters a group and is counted; all that it bears is and does, too. */
static pid_t start(const char *group, void (*body)(const char *group))
{
	pid_t child = fork();
	char text[64];

	if (child)
		return child;
	snprintf(text, sizeof(text), GROUPS "/%s/cgroup.procs", group);
	put(text, "0");
	snprintf(text, sizeof(text), "%d", getpid());
	put(TRACES "locked/set_event_pid", text);
	put(TRACES "movable/set_event_pid", text);
	put(TRACES "drained/set_event_pid", text);
	body(group);
	_exit(0);
}

/* A group's processes, and what they did to the kernel's free lists under its zone lock. */
static struct result run(const char *group, void (*body)(const char *group))
{
	struct result result = { .served = -number_of(OURS, "served"), .swapped = -number_of("/proc/vmstat", "pswpout") };
	char path[64];
	int tries;

	wait_for(body == compile ? "compiling" : "the tree of processes");
	all->touched = 0;
	put(TRACES "locked/trace", "");
	put(TRACES "movable/trace", "");
	put(TRACES "drained/trace", "");
	waitpid(start(group, body), NULL, 0);
	result.locked = events(TRACES "locked");
	result.movable = events(TRACES "movable");
	result.drained = events(TRACES "drained");
	result.served += number_of(OURS, "served");
	result.swapped += number_of("/proc/vmstat", "pswpout");
	result.touched = all->touched;
	snprintf(path, sizeof(path), GROUPS "/%s/memory.stat", group);
	/* The kernel brings it up to date every two seconds. */
	for (tries = 0; number_of(path, "anon") && tries < LONG; tries++)
		usleep(100000);
	if (tries == LONG)
		fail("a group is charged for anonymous memory and has no processes");
	return result;
}

static void compare(const char *what, void (*body)(const char *group), void (*check)(void))
{
	struct result plain, ours;

	plain = run("plain", body);
	if (check)
		check();
	ours = run("freehold", body);
	if (check)
		check();
	printf("anonymous: %s: %ld pages served, %ld swapped out; of the kernel's zone lists %ld taken instead of %ld (movable: "
	       "%ld instead of %ld), %ld given instead of %ld\n", what, ours.served, ours.swapped, ours.locked, plain.locked,
	       ours.movable, plain.movable, ours.drained, plain.drained);
	if (plain.served)
		fail("pages were served to those who are not of the group");
	if (ours.touched && !ours.swapped)
		fail("no page of the group went to the swap area");
	if (ours.served < ours.touched)
		fail("pages of the group were not served");
	/* Not so of those given: the kernel's own pages may once make a per-CPU list overflow, which then gives all it has. */
	if (ours.movable * 20 > plain.movable)
		fail("less than 95 % of the movable pages were spared the zone lock");
	/* A compiler's page tables are not movable and stay the kernel's. */
	if (ours.locked * (body == compile ? 5 : 20) > plain.locked)
		fail(body == compile ? "the zone lock was spared less than 80 %" : "the zone lock was spared less than 95 %");
}

static int stop(void)
{
	int file = open(OURS, O_WRONLY), status = write(file, "stop", 4) == 4 ? 0 : errno;

	close(file);
	return status;
}

/* The tree again while the kernel has our shrinker give blocks back and compacts its memory, and huge pages are made. */
static void under_pressure(void)
{
	long given = number_of(STATISTICS, "blocks given back"), moved = number_of("/proc/vmstat", "pgmigrate_success");
	long blocks = number_of(STATISTICS, "blocks");
	pid_t pressure;
	int tries;

	all->turns = 0;
	pressure = fork();
	/* Before the tree, which has eight times as many threads as there are CPUs. */
	if (pressure == 0 && nice(-20) != -20)
		fail("nice");
	if (pressure == 0)
		for (;;) {
			/* First, since compaction takes long. */
			put("/proc/sys/vm/drop_caches", "2");
			put("/proc/sys/vm/compact_memory", "1");
			all->turns++;
			usleep(200000);
		}
	collapse = 1;
	run("freehold", tree);
	kill(pressure, SIGKILL);
	waitpid(pressure, NULL, 0);
	given = number_of(STATISTICS, "blocks given back") - given;
	moved = number_of("/proc/vmstat", "pgmigrate_success") - moved;
	printf("anonymous: under pressure (%ld turns) %ld blocks were given back and %ld pages migrated\n", (long)all->turns,
	       given, moved);
	if (!given || !moved)
		fail("there was no pressure");
	/* They come again as soon as it is over. */
	for (tries = 0; number_of(STATISTICS, "blocks") != blocks && tries < LONG; tries++)
		usleep(100000);
	if (tries == LONG)
		fail("blocks have not come back");
}

/* Has memory of ours while it is to be given back. A byte comes from the pipe each time it is to be checked. */
static void hold(int requests, int answers)
{
	char *memory = map(8 * REGION), byte;
	struct iovec one = { memory + 5 * PAGE, PAGE };
	int pinned[2];

	put(GROUPS "/freehold/cgroup.procs", "0");
	write_pages(memory, 0, 8 * PAGES, 9);
	if (pipe(pinned) || vmsplice(pinned[1], &one, 1, 0) != (ssize_t)PAGE)
		fail("a page cannot be pinned");
	while (write(answers, "", 1) == 1 && read(requests, &byte, 1) == 1) {
		check_pages(memory, 0, 8 * PAGES, 9, "memory has changed while it was given back");
		if (byte == 'u') {
			char page[PAGE];

			if (read(pinned[0], page, PAGE) != (ssize_t)PAGE || *(uint64_t *)page != 9 + 5)
				fail("a pinned page is not what was written");
		}
	}
	_exit(0);
}

static void ask(const int *requests, const int *answers, char byte)
{
	if (byte && write(requests[1], &byte, 1) != 1)
		fail("nobody holds memory");
	if (read(answers[0], &byte, 1) != 1)
		fail("who holds memory has died");
}

static void give_back(void)
{
	int requests[2], answers[2], tries = 0;
	long before;
	uint64_t started;
	pid_t busy;

	if (pipe(requests) || pipe(answers))
		fail("pipe");
	if (fork() == 0) {
		close(requests[1]);
		hold(requests[0], answers[1]);
	}
	/* So that it is seen where the other end is gone. */
	close(requests[0]);
	close(answers[1]);
	wait_for("a process that holds memory");
	ask(requests, answers, 0);
	before = number_of(OURS, "in use");
	if (before < 8 * (long)PAGES)
		fail("memory that is in use is not ours");
	/* Others are in the middle of everything meanwhile. */
	all->touched = 0;
	busy = start("freehold", tree);
	usleep(500000);
	wait_for("the first request for all pages");
	if (stop() != EBUSY)
		fail("all came back, though a page is pinned");
	ask(requests, answers, 'c');
	printf("anonymous: %ld pages in use, %ld of them after all but what is pinned was asked back\n", before,
	       number_of(OURS, "in use"));
	wait_for("the tree that was busy meanwhile");
	waitpid(busy, NULL, 0);
	ask(requests, answers, 'u');
	/* A machine that is busy may need longer than its patience. */
	wait_for("all pages to come back");
	started = now();
	while (stop()) {
		tries++;
		if (now() - started > LONG / 10 * 2 * 1000000000ull) {
			fprintf(stderr, "after %d requests %ld pages are in use\n", tries, number_of(OURS, "in use"));
			fail("not all came back");
			break;
		}
	}
	ask(requests, answers, 'c');
	if (number_of(OURS, "in use") || number_of(OURS, "spoiled"))
		fail("pages are still in use, or were spoiled");
	close(requests[1]);
	wait_for("the process that held memory to end");
	wait(NULL);
	if (run("freehold", tree).served)
		fail("pages are served after the end");
}

/* Counts an event in a buffer of its own, or where `filter` holds; the processes that are counted are named later. */
static void trace(const char *name, const char *event, const char *filter)
{
	char path[160];

	snprintf(path, sizeof(path), TRACES "%s", name);
	if (mkdir(path, 0755))
		fail(path);
	snprintf(path, sizeof(path), TRACES "%s/options/event-fork", name);
	put(path, "1");
	snprintf(path, sizeof(path), TRACES "%s/events/kmem/%s/filter", name, event);
	put(path, filter);
	snprintf(path, sizeof(path), TRACES "%s/events/kmem/%s/enable", name, event);
	put(path, "1");
}

int main(int argc, char **argv)
{
	pid_t watcher;

	all = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		return 1;
	wanted = argc > 1 ? atol(argv[1]) : 100000;
	setvbuf(stdout, NULL, _IOLBF, 0);
	wait_for("the start");
	watcher = watch();
	trace("locked", "mm_page_alloc_zone_locked", "0");
	trace("movable", "mm_page_alloc_zone_locked", "migratetype == 1");
	trace("drained", "mm_page_pcpu_drain", "0");
	compare("tree", tree, NULL);
	if (access("/cc1", X_OK) == 0)
		compare("compilers", compile, compare_compiled);
	/* Not counted from here on. */
	put(TRACES "locked/events/enable", "0");
	put(TRACES "movable/events/enable", "0");
	put(TRACES "drained/events/enable", "0");
	under_pressure();
	give_back();
	kill(watcher, SIGKILL);
	waitpid(watcher, NULL, 0);
	printf("anonymous: %s: %ld pages served, %ld asked of the kernel, %ld wrong\n", all->wrong ? "FAILED" : "passed",
	       number_of(OURS, "served"), number_of(OURS, "elsewhere"), (long)all->wrong);
	return !!all->wrong;
}
