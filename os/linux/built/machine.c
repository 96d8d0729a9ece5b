/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The loads that change the machine under the processes: its memory is filled to the end, compacted
 * and swapped out, parts of the memory and CPUs go and come. os/linux/README.md says what each is.
 */
#include "loads.h"

#include <signal.h>
#include <stdint.h>
#include <sys/uio.h>

/* A number of /proc/vmstat or /proc/meminfo; 0 where it has none. */
long number_in(const char *path, const char *name)
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

long number_of(const char *path)
{
	FILE *file = fopen(path, "r");
	long number = -1;

	must(file && fscanf(file, "%ld", &number) == 1, path);
	fclose(file);
	return number;
}

/* More than any machine here has. */
#define PARTS 4096
#define PART BLOCK

struct filled {
	char *part[PARTS];
	int parts;
};

/* The first word of each page has its own address. */
static void fill_part(struct filled *filled)
{
	char *part = map(PART + BLOCK, MADV_HUGEPAGE);

	part += -(unsigned long)part % BLOCK;
	for (size_t at = 0; at < PART; at += PAGE)
		*(uintptr_t *)(part + at) = (uintptr_t)(part + at);
	filled->part[filled->parts++] = part;
}

/*
 * Memory is filled, part by part, until the kernel has counted one of what, or less than so many kB
 * are free.
 */
static void fill_until(struct filled *filled, const char *what, long free)
{
	long before = number_in("/proc/vmstat", what);

	while (number_in("/proc/vmstat", what) == before &&
	       number_in("/proc/meminfo", "MemFree") > free) {
		must(filled->parts < PARTS, what);
		fill_part(filled);
	}
}

/* Free memory in whole blocks: 2 MiB each. */
static long whole_blocks(void)
{
	FILE *file = fopen("/proc/buddyinfo", "r");
	long blocks = 0, nine, ten;
	char line[256];

	must(file != NULL, "/proc/buddyinfo");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line,
			   "Node %*d, zone %*s %*d %*d %*d %*d %*d %*d %*d %*d %*d %ld %ld",
			   &nine, &ten) == 2)
			blocks += nine + 2 * ten;
	fclose(file);
	return blocks;
}

/* A huge page of which a part was given back is a whole one, and in use, until it is split. */
static void split_huge_pages(void)
{
	must(put("/sys/kernel/debug/split_huge_pages", "1"), "split_huge_pages");
}

/*
 * Blocks that compaction must have made whole since memory was full, of some hundred that it can, or
 * an eighth of those that were filled: kcompactd may have done so before it is asked for. As many
 * are asked for in between.
 */
#define COMPACTED 64l

/* Free memory in kB by that share, at most so many. */
static long share_of_free(long share, long most)
{
	return at_most(most, number_in("/proc/meminfo", "MemFree") / share);
}

/* The first 64 KiB of each 128. */
static void free_half(struct filled *filled)
{
	for (int part = 0; part < filled->parts; part++)
		for (size_t at = 0; at < PART; at += 32 * PAGE)
			must(!madvise(filled->part[part] + at, 16 * PAGE, MADV_DONTNEED), "madvise");
	split_huge_pages();
}

/* The rest has what was written. */
static void check_half(const struct filled *filled)
{
	for (int part = 0; part < filled->parts; part++)
		for (size_t at = 16 * PAGE; at < PART; at += 32 * PAGE)
			must(*(uintptr_t *)(filled->part[part] + at) ==
			     (uintptr_t)(filled->part[part] + at),
			     "a page was moved and is another");
}

/*
 * Half of all memory is freed in pieces of 64 KiB, then more whole blocks are wanted than were
 * left: 96 MiB or a quarter, of which the kernel keeps half for itself. To fill more would have it
 * kill somebody, since there is nothing yet to swap to.
 */
void load_compact(void)
{
	struct filled filled = {};
	long made, whole, wanted;

	fill_until(&filled, "thp_fault_fallback", share_of_free(4, 96 << 10));
	whole = whole_blocks();
	free_half(&filled);
	reached("filled_MiB", filled.parts * (long)(PART >> 20));
	wanted = at_most(COMPACTED, filled.parts / 8);
	made = number_in("/proc/vmstat", "thp_fault_alloc");
	touch(map((wanted + 1) * BLOCK, MADV_HUGEPAGE), wanted * BLOCK);
	reached("huge_from_pieces", number_in("/proc/vmstat", "thp_fault_alloc") - made);
	shell("echo 1 > /proc/sys/vm/compact_memory");
	reached("blocks_made_whole", whole_blocks() - whole);
	must(whole_blocks() > whole + wanted, "compaction has made hardly any block whole");
	check_half(&filled);
}

#define HUGE "/sys/kernel/mm/transparent_hugepage/"
#define KHUGEPAGED HUGE "khugepaged/"

/* Huge pages that khugepaged makes, in so many passes at most. */
#define COLLAPSED 50l
#define PASSES 64l

/*
 * Memory is in pieces of 64 KiB, and huge pages have taken what whole blocks there were. 100 MiB of
 * small pages, which begin with the part that had no huge page any more, are khugepaged's then:
 * each of its huge pages needs compaction.
 */
void load_khugepaged(void)
{
	long before = number_of(KHUGEPAGED "pages_collapsed"), had = 0, scans;
	struct filled filled = {};

	fill_until(&filled, "thp_fault_fallback", share_of_free(4, 96 << 10));
	free_half(&filled);
	must(put(HUGE "defrag", "never"), HUGE "defrag");
	fill_until(&filled, "thp_fault_fallback", 0);
	must(put(HUGE "defrag", "madvise") && put(HUGE "enabled", "never"), HUGE "enabled");
	for (int part = 1; part < COLLAPSED; part++)
		fill_part(&filled);
	scans = number_of(KHUGEPAGED "full_scans");
	must(put(KHUGEPAGED "alloc_sleep_millisecs", "0") &&
	     put(KHUGEPAGED "scan_sleep_millisecs", "0") && put(HUGE "enabled", "madvise"),
	     HUGE "enabled");
	while (had < COLLAPSED && number_of(KHUGEPAGED "full_scans") - scans < PASSES) {
		usleep(10000);
		had = number_of(KHUGEPAGED "pages_collapsed") - before;
	}
	reached("blocks_wanted", COLLAPSED);
	reached("blocks_had", had);
	must(had >= COLLAPSED || (had && access("/sys/kernel/debug/freehold", F_OK)),
	     "khugepaged collapses too little");
	check_half(&filled);
}

#define BLOCKS_TRIAL "/sys/kernel/debug/blocks_trial"
#define BLOCKS_ORDER "/sys/kernel/debug/blocks_order"
#define BLOCKS_UNMOVABLE "/sys/kernel/debug/blocks_unmovable"
#define BLOCKS_ALONE "/sys/kernel/debug/blocks_alone"
#define SCANNERS_TRIAL "/sys/kernel/debug/scanners_trial"

/* Hundredths of a zone that compaction's scanners must begin apart. */
#define APART 50

/* One page stays in each block of all memory but 256 MiB, or an eighth: none is whole, and can be. */
static char *one_in_each_block(long *blocks)
{
	size_t size;
	char *memory;

	*blocks = (number_in("/proc/meminfo", "MemFree") - share_of_free(8, 256 << 10)) >> 11;
	must(*blocks > 40, "memory for the load");
	size = *blocks * BLOCK;
	memory = map(size + BLOCK, MADV_HUGEPAGE);
	memory += -(unsigned long)memory % BLOCK;
	for (size_t at = 0; at < size; at += BLOCK) {
		memory[at] = 1;
		must(!madvise(memory + at + PAGE, BLOCK - PAGE, MADV_DONTNEED), "madvise");
	}
	split_huge_pages();
	return memory;
}

/* So many chunks beside as many that need no compaction; how many were had. */
static long chunks_had(long wanted)
{
	must(put_number(BLOCKS_TRIAL, wanted), BLOCKS_TRIAL);
	return number_of(BLOCKS_TRIAL);
}

/*
 * One page is moved for each of more than a third of the blocks, which are asked for beside those
 * that are whole. Then each block has one page again, and compaction forgets which it has skipped:
 * it must find some to take pages from at one end of the zone, and some to move them to at the
 * other. Without that the lower half may have none to take: kcompactd makes blocks whole besides.
 * All of it is tried where kswapd has given up, too.
 */
void load_ones(void)
{
	long blocks, wanted, had, apart;
	char *memory;

	/* As it is, then where kswapd clears no notes of compaction. */
	for (int alone = 0; alone < 2; alone++) {
		memory = one_in_each_block(&blocks);
		must(put_number(BLOCKS_ALONE, alone), BLOCKS_ALONE);
		wanted = blocks * 3 / 8;
		had = chunks_had(wanted);
		reached("blocks_wanted", wanted);
		reached("blocks_had", had);
		/* As it is other kernels fail without kswapd. */
		must(had >= wanted - wanted / 40 ||
		     (alone && access("/sys/kernel/debug/freehold", F_OK)),
		     "one page in each block keeps too many from being whole");
		munmap(memory, blocks * BLOCK);
	}
	must(put(BLOCKS_ALONE, "0"), BLOCKS_ALONE);
	memory = one_in_each_block(&blocks);
	apart = number_of(SCANNERS_TRIAL);
	reached("scanners_apart", apart);
	must(apart >= APART, "compaction's scanners begin where they meet");
	munmap(memory, blocks * BLOCK);
}

/* A line of the table of --foreign: what was had and what was not, and what compaction did. */
static void tell_chunks(const char *name, char *order, char *unmovable, long wanted)
{
	static const char *const names[] = { "oom_kill", "compact_stall", "compact_migrate_scanned",
					     "compact_daemon_migrate_scanned", "pgmigrate_success" };
	long before[5], had;

	must(put(BLOCKS_ORDER, order) && put(BLOCKS_UNMOVABLE, unmovable), BLOCKS_ORDER);
	/* By how little of a zone's free memory serves an order kcompactd begins by itself. */
	shell("sed 's/^/unusable: /' /sys/kernel/debug/extfrag/unusable_index");
	for (int at = 0; at < 5; at++)
		before[at] = number_in("/proc/vmstat", names[at]);
	had = chunks_had(wanted);
	printf("foreign\tours\t%s\t%s\t%ld\t%ld\t0", name, had < wanted ? "failed" : "passed", had,
	       wanted - had);
	for (int at = 0; at < 5; at++)
		printf("\t%ld", number_in("/proc/vmstat", names[at]) - before[at]);
	printf("\n");
	fflush(stdout);
}

/* Chunks of both types with one page in each block; then larger ones, every second block free. */
void load_pairs(void)
{
	long blocks;
	char *memory = one_in_each_block(&blocks);

	tell_chunks("one page in each block, unmovable", "9", "Y", blocks * 3 / 8);
	tell_chunks("one page in each block, movable", "9", "N", blocks * 3 / 8);
	for (long block = 0; block < blocks; block += 2)
		must(!madvise(memory + block * BLOCK, BLOCK, MADV_DONTNEED), "madvise");
	tell_chunks("one in every second, order 10", "10", "N", blocks / 8);
	must(put(BLOCKS_ORDER, "9"), BLOCKS_ORDER);
	for (long block = 1; block < blocks; block += 2)
		must(memory[block * BLOCK] == 1, "a page was moved and is another");
	munmap(memory, blocks * BLOCK);
}

/* Pages that a pipe takes, if it is asked to. */
#define LENT 256

/* The first page of each block is lent to pipes, which hold it where it is; one end of each. */
static int lend(char *memory, long blocks, int ends[PARTS / LENT])
{
	int pipes = 0, both[2];

	for (long at = 0; at < blocks; at += LENT) {
		struct iovec pages[LENT];
		long count = blocks - at < LENT ? blocks - at : LENT;

		for (long page = 0; page < count; page++)
			pages[page] = (struct iovec){ memory + (at + page) * BLOCK, PAGE };
		must(!pipe(both) && fcntl(both[1], F_SETPIPE_SZ, LENT * PAGE) > 0, "pipe");
		must(vmsplice(both[1], pages, count, 0) == count * (long)PAGE, "vmsplice");
		close(both[1]);
		ends[pipes++] = both[0];
	}
	return pipes;
}

/*
 * While no block can be emptied whoever asks for one, or for two together, is told so. Once the
 * pages can be moved all are had, though kswapd clears no notes of compaction.
 */
void load_pinned(void)
{
	int ends[PARTS / LENT], pipes;
	long blocks, wanted, had;
	char *memory = one_in_each_block(&blocks);

	wanted = blocks * 3 / 8;
	pipes = lend(memory, blocks, ends);
	must(put_number(BLOCKS_ALONE, 1), BLOCKS_ALONE);
	for (int order = 10; order > 8; order--) {
		must(put_number(BLOCKS_ORDER, order), BLOCKS_ORDER);
		reached("had_of_pinned", chunks_had(wanted));
	}
	while (pipes)
		close(ends[--pipes]);
	/* After failures compaction puts off some requests; after 64 it forgets its notes anyway. */
	for (int tries = 0; tries < 4 && (had = chunks_had(wanted)) < wanted - wanted / 40; tries++)
		reached("put_off", 1);
	reached("had_once_movable", had);
	must(put_number(BLOCKS_ALONE, 0), BLOCKS_ALONE);
	must(had >= wanted - wanted / 40 || access("/sys/kernel/debug/freehold", F_OK),
	     "blocks that could not be emptied once are left out");
	munmap(memory, blocks * BLOCK);
}

#define POWER "/sys/power/"

/*
 * The machine gets ready to be saved, as far as the image's pages are taken and processes stand
 * still, and goes on. A free page that is taken for one in use would be saved, too.
 */
void load_save(void)
{
	long used, free, pages;

	must(put(POWER "image_size", "1000000000000"), POWER "image_size");
	must(put(POWER "pm_test", "freezer"), POWER "pm_test");
	free = number_in("/proc/meminfo", "MemFree") / 4;
	used = number_in("/proc/meminfo", "MemTotal") / 4 - free;
	must(put(POWER "state", "disk"), "memory that is saved");
	put(POWER "pm_test", "none");
	shell("dmesg | sed -n 's/.*Allocated \\([0-9]*\\) pages for snapshot.*/\\1/p' |"
	      " tail -n 1 > /tmp/saved");
	pages = number_of("/tmp/saved");
	reached("pages_in_use", used);
	reached("pages_saved", pages);
	/* The kernel itself is saved, too: some 100 MiB, however small the machine is. */
	if (pages > used + free / 4) {
		fprintf(stderr, "%ld pages are saved, %ld in use, %ld free\n", pages, used, free);
		exit(1);
	}
}

#define LARGE (6 * BLOCK)

/* Until they are ended: processes that hold memory of many sizes for a while, wherever they run. */
static void allocate_for_ever(int number)
{
	struct regions regions = { .random = 34 + number };

	char *large = NULL;

	for (int step = 0;; step++) {
		another_region(&regions, step % 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		if (step % 8)
			continue;
		/*
		 * Of several blocks, and held while CPUs go: what those owned is freed later, on
		 * others.
		 */
		if (large)
			munmap(large, LARGE);
		large = map(LARGE, MADV_NOHUGEPAGE);
		touch(large, LARGE);
		if (!fork()) {
			touch(map(BLOCK / 2, MADV_NOHUGEPAGE), BLOCK / 2);
			_exit(0);
		}
		while (wait(NULL) > 0)
			;
	}
}

/* Does it while such processes run, two a CPU. */
void while_others_allocate(void (*does)(void))
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

int put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	int done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);

	if (file >= 0)
		close(file);
	return done;
}

int put_number(const char *path, long number)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", number);
	return put(path, text);
}

static void cpus_go_and_come(void)
{
	long gone = 0;

	for (int round = 0; round < rounds; round++) {
		char path[64];

		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online",
			 1 + round % (cpus - 1));
		must(put(path, "0"), path);
		gone++;
		usleep(100000);
		must(put(path, "1"), path);
		usleep(100000);
	}
	reached("cpus_gone", gone);
}

void load_cpus(void)
{
	if (cpus > 1)
		while_others_allocate(cpus_go_and_come);
}

/* Within some seconds: the kernel tries again until a signal comes. Whether it went. */
static int goes(const char *path, unsigned int seconds)
{
	pid_t pid = fork();

	must(pid >= 0, "fork");
	if (!pid) {
		alarm(seconds);
		_exit(!put(path, "offline"));
	}
	return ends_well(pid);
}

#define FREEHOLD "/sys/kernel/debug/freehold"

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
		/* Freehold's memory comes back as a zone's that is Freehold's, or not at all. */
		if (!access(FREEHOLD, F_OK) && put(path, "online_movable")) {
			must(number_in(FREEHOLD, "node0_Movable_frames") && goes(path, 10), path);
			gone++;
		}
		must(put(path, "online"), path);
	}
	reached("memory_gone", gone);
	reached("memory_stayed", stayed);
	/* Of a few sections each may have something of the kernel's. */
	must(gone > 0 || stayed < 4, "no memory could go");
}

void load_memory(void)
{
	while_others_allocate(memory_goes_and_comes);
}

#define SECTION (64 * BLOCK)
#define MEMORY "/sys/devices/system/memory/"

/*
 * Memory that the machine has had from the start, and the kernel was not told of, comes online
 * behind all other; and is used.
 */
void load_added(void)
{
	long before = number_in("/proc/meminfo", "MemTotal"), free, section = 0;
	char words[64];

	for (int zone = 0; zone < 64; zone++) {
		struct frames frames = zone_of_round(zone);
		long end = (frames.first + frames.count) * PAGE / SECTION;

		section = end > section ? end : section;
	}
	for (int round = 0; round < rounds; round++, section++) {
		snprintf(words, sizeof(words), "0x%lx", section * SECTION);
		must(put(MEMORY "probe", words), MEMORY "probe");
		snprintf(words, sizeof(words), MEMORY "memory%ld/state", section);
		free = number_in("/proc/meminfo", "MemFree");
		must(put(words, "online_kernel"), words);
		must(number_in("/proc/meminfo", "MemFree") - free > (long)(SECTION >> 11),
		     "the memory that came is not free");
	}
	must(number_in("/proc/meminfo", "MemTotal") - before == rounds * (long)(SECTION >> 10),
	     "MemTotal");
	reached("added_MiB", rounds * (long)(SECTION >> 20));
	/* More than there was. */
	touch(map(before * 1024, MADV_HUGEPAGE), before * 1024);
}

/*
 * Page cache over all of memory, in single pages. One of each 16 is read again at once, and stays
 * when reclaim takes the others.
 */
void load_filled(void)
{
	static char bytes[16 * PAGE];
	int file = open("/dev/zram0", O_RDONLY);
	long pieces = 0;

	must(file >= 0 && !posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM), "/dev/zram0");
	while (pread(file, bytes, sizeof(bytes), pieces * sizeof(bytes)) == sizeof(bytes)) {
		for (int again = 0; again < 2; again++)
			must(pread(file, bytes, PAGE, pieces * sizeof(bytes)) > 0, "pread");
		pieces++;
	}
	reached("filled_MiB", pieces / 16);
	close(file);
}

/* What is more than fits, in blocks. */
#define BEYOND 96

/*
 * More is filled than fits. Then each CPU reads a part of it, in an order of its own, while it
 * allocates.
 */
void load_swap(void)
{
	struct filled filled = {};

	fill_until(&filled, "pswpout", 0);
	for (int more = 0; more < BEYOND; more++)
		fill_part(&filled);
	reached("filled_MiB", filled.parts * (long)(PART >> 20));
	for (int cpu = 0; cpu < cpus; cpu++) {
		if (child(cpu))
			continue;
		for (int number = 0; number < 64; number++) {
			char *part = filled.part[(cpu + 1) * 7919 * (number + 1) % filled.parts];
			char *own = map(BLOCK / 4, MADV_NOHUGEPAGE);

			touch(own, BLOCK / 4);
			for (size_t at = 0; at < PART; at += PAGE)
				must(*(uintptr_t *)(part + at) == (uintptr_t)(part + at),
				     "a page is another after swap");
		}
		_exit(0);
	}
	children_end();
}
