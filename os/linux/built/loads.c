/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the built kernels are made to do. Each load is one thing that the page allocator is asked
 * for on all CPUs at once: os/linux/README.md says what each is.
 *
 * Usage: loads NAME ROUNDS. Whatever fails ends it with 1. What a load has reached is added to
 * /tmp/reached, "what N" a line.
 */
#include "loads.h"

#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

int cpus, rounds;

/*
 * Two processes a CPU. All have faulted before the first one may end: the pipe's end closes for all
 * of them at once.
 */
static void load_exit(void)
{
	size_t size = 12 * BLOCK;
	int ready[2], gate[2];
	char byte = 0;

	must(!pipe(ready) && !pipe(gate), "pipe");
	for (int number = 0; number < 2 * cpus; number++) {
		if (child(number))
			continue;
		close(gate[1]);
		touch(map(size, MADV_NOHUGEPAGE), size);
		must(write(ready[1], &byte, 1) == 1, "write");
		must(read(gate[0], &byte, 1) == 0, "read");
		_exit(0);
	}
	for (int number = 0; number < 2 * cpus; number++)
		must(read(ready[0], &byte, 1) == 1, "read");
	close(gate[1]);
	children_end();
	close(gate[0]), close(ready[0]), close(ready[1]);
}

#define ARENA_BLOCKS 16

static pthread_barrier_t turn;
static char **arenas;

static void *allocates(void *argument)
{
	long self = (long)argument;

	run_on(self);
	for (int round = 0; round < rounds; round++) {
		for (int block = 0; block < ARENA_BLOCKS; block++)
			touch(arenas[self * ARENA_BLOCKS + block], BLOCK);
		pthread_barrier_wait(&turn);
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

static void load_arena(void)
{
	pthread_t threads[cpus];
	int blocks = cpus * ARENA_BLOCKS;

	arenas = calloc(blocks, sizeof(*arenas));
	must(arenas && !pthread_barrier_init(&turn, NULL, cpus + 1), "barrier");
	for (int block = 0; block < blocks; block++)
		arenas[block] = map(BLOCK, MADV_NOHUGEPAGE);
	for (long self = 0; self < cpus; self++)
		must(!pthread_create(&threads[self], NULL, allocates, (void *)self),
		     "pthread_create");
	run_on(0);
	for (int round = 0; round < rounds; round++) {
		pthread_barrier_wait(&turn);
		for (int block = 0; block < blocks; block++)
			if ((block + round) % 4)
				must(!madvise(arenas[block], BLOCK, MADV_DONTNEED), "madvise");
		pthread_barrier_wait(&turn);
	}
	for (int self = 0; self < cpus; self++)
		pthread_join(threads[self], NULL);
}

static void blocks_come_and_go(int cpu)
{
	size_t size = 32 * BLOCK;
	char *memory = map(size + BLOCK, MADV_HUGEPAGE);

	memory += -(unsigned long)memory % BLOCK;
	touch(memory, size);
	for (size_t at = 0; at < size; at += 2 * BLOCK)
		must(!madvise(memory + at + 16 * PAGE, 32 * PAGE, MADV_DONTNEED), "madvise");
	if (!child(cpu)) {
		/* Copies on write: half of them are of whole blocks, half of split ones. */
		touch(memory, size / 2);
		_exit(0);
	}
	children_end();
}

static void write_file(int cpu, unsigned int number, size_t size)
{
	static char bytes[16 * PAGE];
	char name[64];
	int file;

	snprintf(name, sizeof(name), "/tmp/load-%d-%u", cpu, number);
	file = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
	must(file >= 0, name);
	for (size_t at = 0; at < size; at += sizeof(bytes))
		must(write(file, bytes, sizeof(bytes)) == sizeof(bytes), name);
	close(file);
}

static void regions_of_many_sizes(int cpu)
{
	struct regions regions = { .random = 2026 + cpu };

	for (int step = 0; step < rounds; step++) {
		size_t size = another_region(&regions, step % 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);

		if (step % 4 == 0)
			write_file(cpu, step / 4 % 40, size / 2);
		if (step % 16)
			continue;
		if (!child(cpu)) {
			touch(map(BLOCK / 2, MADV_NOHUGEPAGE), BLOCK / 2);
			_exit(0);
		}
		children_end();
	}
}

static void read_cut_delete(int cpu, unsigned int number)
{
	static char bytes[16 * PAGE];
	char name[64];
	int file;

	snprintf(name, sizeof(name), "/tmp/load-%d-%u", cpu, number);
	file = open(name, O_RDWR);
	must(file >= 0, name);
	while (read(file, bytes, sizeof(bytes)) > 0)
		;
	must(!ftruncate(file, 8 * PAGE), name);
	close(file);
	must(number % 2 || !unlink(name), name);
}

/* Who writes a file is not who cuts it. */
static void load_cache(void)
{
	for (int part = 0; part < 2; part++) {
		for (int cpu = 0; cpu < cpus; cpu++) {
			if (child(cpu + part))
				continue;
			for (unsigned int number = 0; number < 16; number++)
				part ? read_cut_delete(cpu, number) :
				       write_file(cpu, number, (1 + number % 4) * 128 * PAGE);
			_exit(0);
		}
		children_end();
	}
}

#define SMALL_FILES 160

static void pack_and_unpack(int cpu)
{
	char command[256];

	snprintf(command, sizeof(command), "/tmp/tree-%d", cpu);
	must(!mkdir(command, 0700), command);
	for (int number = 0; number < SMALL_FILES; number++) {
		char name[64];
		int file;

		snprintf(name, sizeof(name), "/tmp/tree-%d/a-name-of-some-length-%d", cpu, number);
		file = open(name, O_CREAT | O_RDWR, 0600);
		must(file >= 0 && !ftruncate(file, number % 9 * 1500), name);
		must(pwrite(file, name, sizeof(name), number % 9 * 1500) == sizeof(name), name);
		close(file);
	}
	snprintf(command, sizeof(command),
		 "cd /tmp/tree-%d; mkdir copy; tar -cf - a-name* | tar -xf - -C copy;"
		 "[ $(find . -type f | wc -l) = %d ]; grep -rl length-7 copy > /dev/null; rm -r /tmp/tree-%d",
		 cpu, 2 * SMALL_FILES, cpu);
	shell(command);
}

#define LAZY (128ul << 20)
#define FOLIO (16 * PAGE)
#define SPLIT_DEFERRED "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats/split_deferred"

/*
 * What Barry Song's program does (February 2025): folios of 64 KiB that nobody needs any more are
 * reclaimed. How long a folio takes, and how many were on the queue of those to be split.
 */
static void load_lazyfree(void)
{
	char *memory = map(LAZY + FOLIO, MADV_HUGEPAGE);
	long queued = number_of(SPLIT_DEFERRED), freed = number_in("/proc/vmstat", "pglazyfreed");
	struct timespec began, ended;

	memory += -(unsigned long)memory % FOLIO;
	memset(memory, 1, LAZY);
	must(!madvise(memory, LAZY, MADV_FREE), "MADV_FREE");
	clock_gettime(CLOCK_MONOTONIC, &began);
	must(!madvise(memory, LAZY, MADV_PAGEOUT), "MADV_PAGEOUT");
	clock_gettime(CLOCK_MONOTONIC, &ended);
	queued = number_of(SPLIT_DEFERRED) - queued;
	freed = number_in("/proc/vmstat", "pglazyfreed") - freed;
	printf("lazyfree: %ld ns a folio, %ld of %ld folios queued to be split\n",
	       ((ended.tv_sec - began.tv_sec) * 1000000000 + ended.tv_nsec - began.tv_nsec) /
		       (long)(LAZY / FOLIO), queued, (long)(LAZY / FOLIO));
	reached("split_deferred", queued);
	must(freed == LAZY / PAGE, "all of it is reclaimed");
	munmap(memory, LAZY);
}

int main(int count, char **words)
{
	static const struct {
		const char *name;
		void (*load)(void), (*on_each)(int cpu);
		int counts_itself;
	} loads[] = {
		{ "exit", load_exit, NULL, 0 },		{ "arena", load_arena, NULL, 1 },
		{ "huge", NULL, blocks_come_and_go, 0 }, { "mixed", NULL, regions_of_many_sizes, 1 },
		{ "cache", load_cache, NULL, 0 },	{ "files", NULL, pack_and_unpack, 0 },
		{ "compact", load_compact, NULL, 0 },	{ "cpus", load_cpus, NULL, 1 },
		{ "memory", load_memory, NULL, 1 },	{ "swap", load_swap, NULL, 0 },
		{ "contig", load_contig, NULL, 1 },	{ "added", load_added, NULL, 1 },
		{ "cma", load_cma, NULL, 1 },		{ "poison", load_poison, NULL, 1 },
		{ "report", load_report, NULL, 0 },	{ "atomic", load_atomic, NULL, 0 },
		{ "ones", load_ones, NULL, 0 },		{ "save", load_save, NULL, 0 },
		{ "pairs", load_pairs, NULL, 0 },	{ "lazyfree", load_lazyfree, NULL, 0 },
		{ "filled", load_filled, NULL, 0 },	{ "pinned", load_pinned, NULL, 0 },
		{ "khugepaged", load_khugepaged, NULL, 0 },
	};

	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	rounds = count == 3 ? atoi(words[2]) : 0;
	for (size_t which = 0; rounds > 0 && which < sizeof(loads) / sizeof(*loads); which++) {
		if (strcmp(words[1], loads[which].name))
			continue;
		for (int round = 0; round < (loads[which].counts_itself ? 1 : rounds); round++)
			loads[which].load ? loads[which].load() : on_each_cpu(loads[which].on_each);
		return 0;
	}
	fprintf(stderr, "usage: loads NAME ROUNDS\n");
	return 2;
}
