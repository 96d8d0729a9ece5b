/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the built kernels are made to do. Each load is one thing that the page allocator is asked for on all CPUs at once:
 *
 *   exit    processes fault memory in and end at the same moment
 *   arena   threads fault on every CPU, one thread gives three quarters of it back: many allocate, few free (jemalloc's way)
 *   huge    blocks of 2 MiB come, are split by holes, copied by a child and go
 *   mixed   regions of many sizes, in folios of many orders where the kernel makes those, children, files that stay
 *   cache   files in memory are written, read, cut short and deleted
 *
 * Usage: loads NAME ROUNDS. Whatever fails ends it with 1.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define BLOCK (512 * PAGE)

static int cpus, rounds;

static void must(int holds, const char *what)
{
	if (holds)
		return;
	perror(what);
	exit(1);
}

static void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu % cpus, &set);
	must(!sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

static char *map(size_t size, int advice)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(memory != MAP_FAILED, "mmap");
	madvise(memory, size, advice);
	return memory;
}

static void touch(char *memory, size_t size)
{
	for (size_t at = 0; at < size; at += PAGE)
		memory[at] = 1;
}

/* A child on that CPU; 0 within it. */
static pid_t child(int cpu)
{
	pid_t pid = fork();

	must(pid >= 0, "fork");
	if (!pid)
		run_on(cpu);
	return pid;
}

static void children_end(void)
{
	int status;

	while (wait(&status) > 0)
		must(WIFEXITED(status) && !WEXITSTATUS(status), "a child");
}

/* A child on each CPU that does this, until all have ended. */
static void on_each_cpu(void (*does)(int cpu))
{
	for (int cpu = 0; cpu < cpus; cpu++) {
		if (child(cpu))
			continue;
		does(cpu);
		_exit(0);
	}
	children_end();
}

/* Two processes a CPU. All have faulted before the first one may end: the pipe's end closes for all of them at once. */
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
		must(!pthread_create(&threads[self], NULL, allocates, (void *)self), "pthread_create");
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

static void load_huge(void)
{
	on_each_cpu(blocks_come_and_go);
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

#define REGIONS 32

static void regions_of_many_sizes(int cpu)
{
	char *regions[REGIONS] = {};
	size_t sizes[REGIONS] = {};
	/* The next number of a linear congruence (Numerical Recipes' constants): the same for each kernel. */
	unsigned int random = 2026 + cpu;

	for (int step = 0; step < 300; step++) {
		unsigned int slot;

		random = random * 1664525 + 1013904223;
		slot = random >> 27;
		if (regions[slot])
			munmap(regions[slot], sizes[slot]);
		sizes[slot] = (1 + (random >> 16) % 256) * PAGE;
		regions[slot] = map(sizes[slot], step % 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		touch(regions[slot], sizes[slot]);
		if (step % 4 == 0)
			write_file(cpu, step / 4 % 40, sizes[slot] / 2);
		if (step % 16)
			continue;
		if (!child(cpu)) {
			touch(map(BLOCK / 2, MADV_NOHUGEPAGE), BLOCK / 2);
			_exit(0);
		}
		children_end();
	}
}

static void load_mixed(void)
{
	on_each_cpu(regions_of_many_sizes);
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
				part ? read_cut_delete(cpu, number) : write_file(cpu, number, (1 + number % 4) * 128 * PAGE);
			_exit(0);
		}
		children_end();
	}
}

int main(int count, char **words)
{
	static const struct {
		const char *name;
		void (*load)(void);
		int counts_itself;
	} loads[] = {
		{ "exit", load_exit, 0 }, { "arena", load_arena, 1 }, { "huge", load_huge, 0 },
		{ "mixed", load_mixed, 0 }, { "cache", load_cache, 0 },
	};

	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	rounds = count == 3 ? atoi(words[2]) : 0;
	for (size_t which = 0; rounds > 0 && which < sizeof(loads) / sizeof(*loads); which++) {
		if (strcmp(words[1], loads[which].name))
			continue;
		for (int round = 0; round < (loads[which].counts_itself ? 1 : rounds); round++)
			loads[which].load();
		return 0;
	}
	fprintf(stderr, "usage: loads exit|arena|huge|mixed|cache ROUNDS\n");
	return 2;
}
