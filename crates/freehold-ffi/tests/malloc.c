/* The malloc, preloaded under this program, which was not told of it: random requests of all kinds
 * from several threads against a shadow, lengthening and shortening, children of fork(2), memory
 * that goes back. `malloc twice` frees something twice, `malloc inside` frees what it was not
 * given; `malloc stats` asks whether there is an arena at all, `malloc guard` frees more than the
 * guard mode's list of freed frames has room for, `malloc moves` lengthens alone, and `malloc
 * refused` where the kernel moves no pages to a place that it is told. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { SLOTS = 256, STEPS = 4000, THREADS = 4 };

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* Sizes on either side of where the arena begins, most of them short. */
static size_t draw(uint64_t *state)
{
    size_t most = (size_t)64 << (next(state) % 16);
    return most + next(state) % most;
}

/* Looked at here and there, and at both ends. */
static int holds(const unsigned char *memory, size_t size, unsigned char with)
{
    for (size_t at = 0; at < size; at += at < 64 ? 1 : 509)
        if (memory[at] != with)
            return 0;
    return size == 0 || memory[size - 1] == with;
}

struct slot {
    pthread_mutex_t lock;
    unsigned char *memory;
    size_t size;
    unsigned char with;
};
static struct slot slots[SLOTS];

static void *allocate(uint64_t *state, size_t size)
{
    size_t align = (size_t)16 << next(state) % 14;
    void *found = NULL;
    switch (next(state) % 8) {
    case 0:
        found = calloc(size / 8 + 1, 8);
        CHECK(found && holds(found, size, 0));
        return found;
    case 1:
        CHECK(posix_memalign(&found, align, size) == 0);
        CHECK((uintptr_t)found % align == 0);
        return found;
    case 2:
        found = aligned_alloc(align, size);
        CHECK((uintptr_t)found % align == 0);
        return found;
    case 3:
        found = next(state) % 2 ? valloc(size) : pvalloc(size);
        CHECK((uintptr_t)found % 4096 == 0);
        return found;
    case 4:
        return reallocarray(NULL, size, 1);
    default:
        return malloc(size);
    }
}

/* Whoever comes frees what whoever put there. */
static void *exchange(void *seed)
{
    uint64_t state = (uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;
    for (int step = 0; step < STEPS; step++) {
        struct slot *slot = &slots[next(&state) % SLOTS];
        size_t size = draw(&state);
        pthread_mutex_lock(&slot->lock);
        CHECK(holds(slot->memory, slot->size, slot->with));
        if (slot->memory && next(&state) % 3 == 0) {
            size_t least = size < slot->size ? size : slot->size;
            slot->memory = realloc(slot->memory, size);
            CHECK(slot->memory && holds(slot->memory, least, slot->with));
        } else {
            errno = 77;
            free(slot->memory);
            CHECK(errno == 77);
            slot->memory = allocate(&state, size);
        }
        CHECK(slot->memory && malloc_usable_size(slot->memory) >= size);
        slot->size = size, slot->with = (unsigned char)next(&state);
        memset(slot->memory, slot->with, size);
        pthread_mutex_unlock(&slot->lock);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    for (uintptr_t n = 0; n < THREADS; n++)
        CHECK(pthread_create(&thread[n], NULL, exchange, (void *)(n + 1)) == 0);
    for (int n = 0; n < THREADS; n++)
        pthread_join(thread[n], NULL);
    for (int n = 0; n < SLOTS; n++) {
        free(slots[n].memory);
        slots[n].memory = NULL, slots[n].size = 0;
    }
}

/* A buffer that grows beside others, so that it must move, and shrinks again below all limits. */
static void lengths(void)
{
    unsigned char *grows = NULL, *beside[64];
    size_t size = 0;
    for (int n = 0; n < 64; n++) {
        size_t longer = size + ((size_t)100000 << n % 5);
        grows = realloc(grows, longer);
        CHECK(grows && holds(grows, size, 3));
        memset(grows, 3, longer), size = longer;
        CHECK((beside[n] = malloc(40000)) != NULL);
        memset(beside[n], 4, 40000);
    }
    for (; size > 10; size = size / 3 + 1) {
        grows = realloc(grows, size / 3 + 1);
        CHECK(grows && holds(grows, size / 3 + 1, 3));
    }
    for (int n = 0; n < 64; n++) {
        CHECK(holds(beside[n], 40000, 4));
        free(beside[n]);
    }
    free(grows);
    CHECK((grows = malloc(1 << 20)) && realloc(grows, 0) == NULL);
}

static int mappings(void)
{
    int lines = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file);
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

/* The kernel keeps moved pages apart from their neighbours as long as they live, and no longer. */
static void moves(void)
{
    enum { MOVED = 300 };
    unsigned char *moved[MOVED];
    int before = mappings();
    for (int n = 0; n < MOVED; n++) {
        CHECK((moved[n] = malloc(300000)) != NULL);
        memset(moved[n], (unsigned char)n, 300000);
    }
    for (int n = 0; n < MOVED; n++) {
        moved[n] = realloc(moved[n], 700000);
        CHECK(moved[n] && holds(moved[n], 300000, (unsigned char)n));
        memset(moved[n], (unsigned char)n, 700000);
    }
    CHECK(mappings() > before + MOVED / 2);
    /* What has been moved and is longer than that is of two mappings. */
    for (int n = 0; n < MOVED; n++) {
        moved[n] = realloc(moved[n], 1500000);
        CHECK(moved[n] && holds(moved[n], 700000, (unsigned char)n));
        memset(moved[n], (unsigned char)n, 1500000);
    }
    CHECK(mappings() < before + 2 * MOVED + 20);
    for (int n = 0; n < MOVED; n++) {
        CHECK(holds(moved[n], 1500000, (unsigned char)n));
        free(moved[n]);
    }
    CHECK(mappings() < before + 20);
}

/* The kernel takes pages from where they are, and will not have them at the new place. */
static void refused(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MREMAP_FIXED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    unsigned char *grows = malloc(300000), *beside = malloc(300000), *another = malloc(300000);
    CHECK(grows && beside && another);
    memset(grows, 3, 300000);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    grows = realloc(grows, 700000);
    CHECK(grows && holds(grows, 300000, 3));
    free(grows), free(beside), free(another);
}

static void refusals(void)
{
    void *found = &found;
    volatile size_t most = SIZE_MAX / 2; /* The compiler is not to see it. */
    errno = 0;
    CHECK(calloc(most, 4) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(NULL, most, 4) == NULL && errno == ENOMEM);
    CHECK(malloc(most - 4096) == NULL && pvalloc(SIZE_MAX) == NULL);
    CHECK(posix_memalign(&found, 24, 100000) == EINVAL && found == &found);
    CHECK(posix_memalign(&found, 4096, most - 8192) == ENOMEM && found == &found);
    CHECK((found = malloc(100000)) && realloc(found, most) == NULL);
    free(found);
    for (size_t align = 4096; align <= 8 << 20; align *= 4) {
        CHECK((found = memalign(align, 70000)) && (uintptr_t)found % align == 0);
        memset(found, 1, 70000), free(found);
    }
}

/* A child reads, frees and lengthens what its parent has, and has an arena of its own; so has its
 * own child. */
static void forks(int deep)
{
    unsigned char *shared[3];
    for (int n = 0; n < 3; n++) {
        CHECK((shared[n] = malloc(300000)) != NULL);
        memset(shared[n], (unsigned char)(n + 1), 300000);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int n = 0; n < 3; n++)
            CHECK(holds(shared[n], 300000, (unsigned char)(n + 1)));
        free(shared[0]);
        shared[1] = realloc(shared[1], 900000);
        CHECK(shared[1] && holds(shared[1], 300000, 2));
        shared[2] = realloc(shared[2], 50000);
        CHECK(shared[2] && holds(shared[2], 50000, 3));
        free(shared[1]), free(shared[2]);
        threads();
        if (deep > 0)
            forks(deep - 1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int n = 0; n < 3; n++) {
        CHECK(holds(shared[n], 300000, (unsigned char)(n + 1)));
        free(shared[n]);
    }
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    return pages * 4;
}

/* 95 % of 128 MiB is freed: all but a fifth goes back, without a call, in a program that sleeps. */
static void goes_back(void)
{
    enum { ALL = 128 << 20 };
    const char *thread = getenv("FREEHOLD_MALLOC_THREAD");
    int threadless = thread && *thread == '0';
    static unsigned char *all[ALL >> 15];
    uint64_t state = 5;
    int count = 0;
    CHECK(malloc_trim(0) >= 0);
    long before = resident_kib();
    for (size_t size = 0, used = 0; used < ALL; used += size) {
        size = (32 << 10) + next(&state) % (224 << 10);
        CHECK((all[count] = malloc(size)) != NULL);
        memset(all[count++], 1, size);
    }
    CHECK(resident_kib() - before > ALL / 1024 * 9 / 10);
    for (int n = 0; n < count; n++)
        if (n % 20 != 7)
            free(all[n]);
    for (int tenths = 0; resident_kib() - before > ALL / 1024 / 5; tenths++) {
        CHECK(tenths < 300);
        nanosleep(&(struct timespec){0, 100000000}, NULL);
        /* Where there is no thread to do it, a free does. */
        if (threadless)
            free(malloc(5 << 20));
    }
    for (int n = 7; n < count; n += 20)
        free(all[n]);
}

/* Memory for a while, and then the thread ends. */
static pthread_barrier_t all_have_it;
static void *has_some(void *unused)
{
    unsigned char *mine = malloc(3 << 20);
    CHECK(mine);
    memset(mine, 1, 3 << 20);
    pthread_barrier_wait(&all_have_it);
    free(mine);
    return unused;
}

/* What threads have freed that were never to free 4 MiB by themselves goes back as well. */
static void ended(void)
{
    enum { THREADS = 64 };
    pthread_t all[THREADS];
    long before = resident_kib();
    pthread_barrier_init(&all_have_it, NULL, THREADS);
    for (int n = 0; n < THREADS; n++)
        CHECK(pthread_create(&all[n], NULL, has_some, NULL) == 0);
    for (int n = 0; n < THREADS; n++)
        pthread_join(all[n], NULL);
    for (int tenths = 0; resident_kib() - before > THREADS * 3 * 1024 / 5; tenths++) {
        CHECK(tenths < 300);
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
}

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "";
    unsigned char *volatile some = malloc(100000);
    CHECK(some);
    if (strcmp(way, "twice") == 0)
        free(some), free(some);
    if (strcmp(way, "inside") == 0)
        free(some + 4096);
    free(some);
    if (strcmp(way, "stats") == 0)
        return 0;
    if (strcmp(way, "ended") == 0)
        return ended(), 0;
    if (strcmp(way, "moves") == 0)
        return moves(), 0;
    if (strcmp(way, "refused") == 0)
        return refused(), 0;
    if (strcmp(way, "guard") == 0) {
        static void *all[3000];
        for (int n = 0; n < 3000; n++)
            CHECK((all[n] = malloc(20000)) != NULL);
        for (int n = 0; n < 3000; n++)
            free(all[n]);
        return 0;
    }
    for (int n = 0; n < SLOTS; n++)
        pthread_mutex_init(&slots[n].lock, NULL);
    refusals();
    lengths();
    moves();
    threads();
    forks(1);
    goes_back();
    puts("malloc: all right");
    return 0;
}
