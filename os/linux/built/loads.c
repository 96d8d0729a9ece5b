/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the built kernels are made to do. Each load is one thing that the page allocator is asked for on all CPUs at once:
 *
 *   exit    processes fault memory in and end at the same moment
 *   arena   threads fault on every CPU, one thread gives three quarters of it back: many allocate, few free (jemalloc's way)
 *   huge    blocks of 2 MiB come, are split by holes, copied by a child and go
 *   mixed   regions of many sizes, in folios of many orders where the kernel makes those, children, files that stay
 *   cache   files in memory are written, read, cut short and deleted
 *   files   small files are packed, unpacked, searched and deleted: inodes and names, many processes
 *   compile a compiler of the host's on each CPU, whose output must be right
 *   compact memory is filled and freed in pieces, then asked for whole blocks, then compacted
 *   cpus    CPUs go and come while others allocate, free, fork and exit
 *   memory  parts of the memory go and come while others do so
 *   swap    memory is filled until pages are swapped out; all of it is read again and must be right
 *
 * Usage: loads NAME ROUNDS. Whatever fails ends it with 1. What a load has reached is added to /tmp/reached, "what N" a line.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

struct regions {
	char *at[REGIONS];
	size_t size[REGIONS];
	unsigned int random;
};

/* Another region of some size in the place of one that was there. */
static size_t another_region(struct regions *regions, int advice)
{
	unsigned int slot;

	/* The next number of a linear congruence (Numerical Recipes' constants): the same for each kernel. */
	regions->random = regions->random * 1664525 + 1013904223;
	slot = regions->random >> 27;
	if (regions->at[slot])
		munmap(regions->at[slot], regions->size[slot]);
	regions->size[slot] = (1 + (regions->random >> 16) % 256) * PAGE;
	regions->at[slot] = map(regions->size[slot], advice);
	touch(regions->at[slot], regions->size[slot]);
	return regions->size[slot];
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

static void reached(const char *what, long count)
{
	FILE *file = fopen("/tmp/reached", "a");

	must(file != NULL, "/tmp/reached");
	fprintf(file, "%s %ld\n", what, count);
	fclose(file);
}

/* A program with its words; whether it ended with 0. */
static int run(char *const words[])
{
	pid_t pid = fork();
	int status;

	must(pid >= 0, "fork");
	if (!pid) {
		execv(words[0], words);
		_exit(127);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

static void shell(const char *command)
{
	must(run((char *[]){ "/bin/sh", "-ec", (char *)command, NULL }), command);
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

static void load_files(void)
{
	on_each_cpu(pack_and_unpack);
}

/* The words are those with which the host has compiled it: xtask/src/linux/compiler.rs. */
static void compiles(int cpu)
{
	char name[32];

	snprintf(name, sizeof(name), "/tmp/compiled-%d.s", cpu);
	must(!chdir("/"), "/");
	must(run((char *[]){ "/cc1", "-fpreprocessed", "-quiet", "-O2", "compile.i", "-o", name, NULL }), "cc1");
	must(run((char *[]){ "/bin/cmp", name, "/compiled.s", NULL }), "what cc1 has compiled");
	must(!unlink(name), name);
}

static void load_compile(void)
{
	on_each_cpu(compiles);
}

/* A number of /proc/vmstat or /proc/meminfo; 0 where it has none. */
static long number_in(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[128];
	long number = 0;

	must(file != NULL, path);
	while (fgets(line, sizeof(line), file)) {
		size_t length = strlen(name);

		if (!strncmp(line, name, length) && (line[length] == ' ' || line[length] == ':'))
			number = atol(line + length + 1);
	}
	fclose(file);
	return number;
}

#define PARTS 512
#define PART (4 * BLOCK)

struct filled {
	char *part[PARTS];
	int parts;
};

/* Memory is filled, part by part, until the kernel has counted one of what; each word has its own address. */
static void fill_until(struct filled *filled, const char *what)
{
	long before = number_in("/proc/vmstat", what);

	while (number_in("/proc/vmstat", what) == before) {
		char *part = map(PART + BLOCK, MADV_HUGEPAGE);

		must(filled->parts < PARTS, what);
		part += -(unsigned long)part % BLOCK;
		for (size_t at = 0; at < PART; at += PAGE)
			*(uintptr_t *)(part + at) = (uintptr_t)(part + at);
		filled->part[filled->parts++] = part;
	}
}

/* Half of all memory is freed in pieces of 32 KiB, so that nothing larger is free; then whole blocks are wanted. */
static void load_compact(void)
{
	struct filled filled = {};
	size_t size = 24 * BLOCK;
	long made = number_in("/proc/vmstat", "thp_fault_alloc");

	fill_until(&filled, "pageoutrun");
	for (int part = 0; part < filled.parts; part++)
		for (size_t at = 0; at < PART; at += 16 * PAGE)
			must(!madvise(filled.part[part] + at, 8 * PAGE, MADV_DONTNEED), "madvise");
	reached("filled_MiB", filled.parts * (long)(PART >> 20));
	made = number_in("/proc/vmstat", "thp_fault_alloc");
	touch(map(size + BLOCK, MADV_HUGEPAGE), size);
	reached("huge_from_pieces", number_in("/proc/vmstat", "thp_fault_alloc") - made);
	shell("echo 1 > /proc/sys/vm/compact_memory");
	for (int part = 0; part < filled.parts; part++)
		for (size_t at = 8 * PAGE; at < PART; at += 16 * PAGE)
			must(*(uintptr_t *)(filled.part[part] + at) == (uintptr_t)(filled.part[part] + at),
			     "a page was moved and is another");
}

/* Until they are ended: processes that hold memory of many sizes for a while, wherever they run. */
static void allocate_for_ever(int number)
{
	struct regions regions = { .random = 34 + number };

	for (int step = 0;; step++) {
		another_region(&regions, step % 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		if (step % 8)
			continue;
		if (!fork()) {
			touch(map(BLOCK / 2, MADV_NOHUGEPAGE), BLOCK / 2);
			_exit(0);
		}
		while (wait(NULL) > 0)
			;
	}
}

/* Does it while such processes run, two a CPU. */
static void while_others_allocate(void (*does)(void))
{
	pid_t pids[2 * cpus];

	for (int number = 0; number < 2 * cpus; number++) {
		pids[number] = fork();
		must(pids[number] >= 0, "fork");
		if (!pids[number])
			allocate_for_ever(number);
	}
	does();
	for (int number = 0; number < 2 * cpus; number++) {
		kill(pids[number], SIGKILL);
		waitpid(pids[number], NULL, 0);
	}
}

static int put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	int done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);

	if (file >= 0)
		close(file);
	return done;
}

static void cpus_go_and_come(void)
{
	long gone = 0;

	for (int round = 0; round < rounds; round++) {
		char path[64];

		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", 1 + round % (cpus - 1));
		must(put(path, "0"), path);
		gone++;
		usleep(100000);
		must(put(path, "1"), path);
		usleep(100000);
	}
	reached("cpus_gone", gone);
}

static void load_cpus(void)
{
	if (cpus > 1)
		while_others_allocate(cpus_go_and_come);
}

/* Within some seconds: the kernel tries again until a signal comes. Whether it went. */
static int goes(const char *path, unsigned int seconds)
{
	pid_t pid = fork();
	int status;

	must(pid >= 0, "fork");
	if (!pid) {
		alarm(seconds);
		_exit(!put(path, "offline"));
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* From the end of the memory; what holds something that cannot move is refused, and counted. */
static void memory_goes_and_comes(void)
{
	long gone = 0, stayed = 0;
	char path[64];

	for (int section = 255; section >= 0 && gone + stayed < rounds; section--) {
		snprintf(path, sizeof(path), "/sys/devices/system/memory/memory%d/state", section);
		if (access(path, W_OK))
			continue;
		if (!goes(path, 10)) {
			stayed++;
			continue;
		}
		gone++;
		must(put(path, "online"), path);
	}
	reached("memory_gone", gone);
	reached("memory_stayed", stayed);
	must(gone + stayed > 0, "there is no memory that could go");
}

static void load_memory(void)
{
	while_others_allocate(memory_goes_and_comes);
}

/* Each CPU reads all that was filled, in another order, while others write theirs. */
static void load_swap(void)
{
	struct filled filled = {};

	fill_until(&filled, "pswpout");
	reached("filled_MiB", filled.parts * (long)(PART >> 20));
	for (int cpu = 0; cpu < cpus; cpu++) {
		if (child(cpu))
			continue;
		for (int number = 0; number < 16; number++) {
			char *part = filled.part[(cpu + 1) * 7919 * (number + 1) % filled.parts];
			char *own = map(BLOCK, MADV_NOHUGEPAGE);

			touch(own, BLOCK);
			for (size_t at = 0; at < PART; at += PAGE)
				must(*(uintptr_t *)(part + at) == (uintptr_t)(part + at), "a page is another after swap");
		}
		_exit(0);
	}
	children_end();
}

int main(int count, char **words)
{
	static const struct {
		const char *name;
		void (*load)(void);
		int counts_itself;
	} loads[] = {
		{ "exit", load_exit, 0 },	{ "arena", load_arena, 1 },	{ "huge", load_huge, 0 },
		{ "mixed", load_mixed, 1 },	{ "cache", load_cache, 0 },	{ "files", load_files, 0 },
		{ "compile", load_compile, 0 }, { "compact", load_compact, 0 }, { "cpus", load_cpus, 1 },
		{ "memory", load_memory, 1 },	{ "swap", load_swap, 0 },
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
	fprintf(stderr, "usage: loads NAME ROUNDS\n");
	return 2;
}
