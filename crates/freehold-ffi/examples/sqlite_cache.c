/* SQLite's page cache in an arena: pages are frames, and what SQLite gives up goes back to the system at once.
 *
 *     cc -O2 sqlite_cache.c $(pkg-config --cflags --libs freehold) -lsqlite3 -o sqlite_cache && ./sqlite_cache
 *
 * One piece of work is done twice, each time in a process of its own: with SQLite's cache and with this one, which decides as that
 * does which page goes when it is full, so that both must have the same pages. What differs is where they are, and what is left
 * of them after sqlite3_db_release_memory.
 */
#define _GNU_SOURCE
#include <freehold.h>
#include <sqlite3.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct page {
    sqlite3_pcache_page base; /* first: what SQLite has is what we have */
    freehold_frames frames;
    unsigned key;
    struct page *next;           /* of the same place in the table */
    struct page *newer, *older;  /* on the list of unpinned pages; null while pinned */
};

struct cache {
    int bytes, extra, purgeable;
    unsigned most, count, unpinned;
    unsigned places;
    struct page **table;
    struct page list; /* older: the newest, newer: the oldest */
};

static freehold_arena *arena;

static int cache_init(void *unused)
{
    (void)unused;
    return freehold_arena_new((uint64_t)1 << 30, &arena, NULL) == FREEHOLD_STATUS_OK ? SQLITE_OK : SQLITE_NOMEM;
}

static void cache_shutdown(void *unused)
{
    (void)unused;
    freehold_arena_destroy(&arena, NULL);
}

static sqlite3_pcache *cache_create(int bytes, int extra, int purgeable)
{
    struct cache *cache = calloc(1, sizeof *cache);
    if (cache) {
        cache->bytes = bytes, cache->extra = extra, cache->purgeable = purgeable;
        cache->list.newer = cache->list.older = &cache->list;
        cache->places = 1024;
        cache->table = calloc(cache->places, sizeof *cache->table);
        if (!cache->table) {
            free(cache);
            return NULL;
        }
    }
    return (sqlite3_pcache *)cache;
}

static void pin(struct cache *cache, struct page *page)
{
    if (page->newer) {
        page->newer->older = page->older;
        page->older->newer = page->newer;
        page->newer = page->older = NULL;
        cache->unpinned--;
    }
}

static struct page **place(struct cache *cache, unsigned key)
{
    struct page **at = &cache->table[key % cache->places];
    while (*at && (*at)->key != key)
        at = &(*at)->next;
    return at;
}

/* Takes a page out of the table and the list; its memory stays. */
static void take_out(struct cache *cache, struct page *page)
{
    *place(cache, page->key) = page->next;
    pin(cache, page);
    cache->count--;
}

static void drop(struct cache *cache, struct page *page)
{
    take_out(cache, page);
    freehold_arena_free_frames(arena, &page->frames, NULL);
    free(page);
}

static void drop_unpinned(struct cache *cache, unsigned leave)
{
    while (cache->count > leave && cache->unpinned)
        drop(cache, cache->list.newer);
}

static void cache_size(sqlite3_pcache *this, int pages)
{
    struct cache *cache = (struct cache *)this;
    cache->most = pages > 0 ? (unsigned)pages : 0;
    if (cache->purgeable)
        drop_unpinned(cache, cache->most);
}

static int cache_count(sqlite3_pcache *this)
{
    return (int)((struct cache *)this)->count;
}

static void grow_table(struct cache *cache)
{
    unsigned places = cache->places * 2, i;
    struct page **table = calloc(places, sizeof *table);
    if (!table)
        return; /* slower, no more */
    for (i = 0; i < cache->places; i++) {
        while (cache->table[i]) {
            struct page *page = cache->table[i];
            cache->table[i] = page->next;
            page->next = table[page->key % places];
            table[page->key % places] = page;
        }
    }
    free(cache->table);
    cache->table = table, cache->places = places;
}

static sqlite3_pcache_page *cache_fetch(sqlite3_pcache *this, unsigned key, int create)
{
    struct cache *cache = (struct cache *)this;
    struct page *page = *place(cache, key);
    const unsigned pinned = cache->count - cache->unpinned;
    if (page) {
        pin(cache, page);
        return &page->base;
    }
    /* 1: only where that is easy, so not where nearly all are in use. */
    if (create == 0 || (create == 1 && cache->purgeable && pinned >= cache->most * 9 / 10))
        return NULL;
    if (cache->purgeable && cache->unpinned && cache->count + 1 >= cache->most) {
        page = cache->list.newer;
        take_out(cache, page);
    } else {
        page = calloc(1, sizeof *page + (size_t)cache->extra);
        if (!page)
            return NULL;
        if (freehold_arena_frames(arena, (uint64_t)(cache->bytes + 4095) / 4096, &page->frames, NULL)) {
            free(page);
            return NULL;
        }
        page->base.pBuf = page->frames.memory;
        page->base.pExtra = page + 1;
    }
    memset(page->base.pExtra, 0, (size_t)cache->extra);
    if (cache->count >= cache->places)
        grow_table(cache);
    page->key = key;
    page->next = cache->table[key % cache->places];
    cache->table[key % cache->places] = page;
    cache->count++;
    return &page->base;
}

static void cache_unpin(sqlite3_pcache *this, sqlite3_pcache_page *base, int discard)
{
    struct cache *cache = (struct cache *)this;
    struct page *page = (struct page *)base;
    if (discard || (cache->purgeable && cache->count > cache->most)) {
        drop(cache, page);
        return;
    }
    page->older = cache->list.older, page->newer = &cache->list;
    page->older->newer = page->newer->older = page;
    cache->unpinned++;
}

static void cache_rekey(sqlite3_pcache *this, sqlite3_pcache_page *base, unsigned old, unsigned key)
{
    struct cache *cache = (struct cache *)this;
    struct page *page = (struct page *)base, *there = *place(cache, key);
    (void)old;
    if (there)
        drop(cache, there);
    *place(cache, page->key) = page->next;
    page->key = key;
    page->next = cache->table[key % cache->places];
    cache->table[key % cache->places] = page;
}

static void cache_truncate(sqlite3_pcache *this, unsigned limit)
{
    struct cache *cache = (struct cache *)this;
    unsigned i;
    for (i = 0; i < cache->places; i++) {
        struct page *page = cache->table[i];
        while (page) {
            struct page *next = page->next;
            if (page->key >= limit)
                drop(cache, page);
            page = next;
        }
    }
}

static void cache_destroy(sqlite3_pcache *this)
{
    cache_truncate(this, 0);
    free(((struct cache *)this)->table);
    free(this);
}

static void cache_shrink(sqlite3_pcache *this)
{
    drop_unpinned((struct cache *)this, 0);
    freehold_arena_trim(arena, NULL, NULL);
}

static const sqlite3_pcache_methods2 methods = {
    1,           NULL,        cache_init,  cache_shutdown, cache_create,  cache_size,    cache_count,
    cache_fetch, cache_unpin, cache_rekey, cache_truncate, cache_destroy, cache_shrink,
};

/* ---- The work ---- */

struct outcome {
    int hits, misses;
    long long sum;
    long before, full, shrunk; /* resident, in KiB */
    double seconds;
};

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        _exit(1);
    }
}

static long resident(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    must(file && fscanf(file, "%*s %ld", &pages) == 1, "no /proc");
    fclose(file);
    return pages * 4;
}

static void sql(sqlite3 *db, const char *text)
{
    char *message = NULL;
    sqlite3_exec(db, text, NULL, NULL, &message);
    must(!message, message);
}

static unsigned long long state;

static unsigned next(unsigned below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((state >> 33) % below);
}

enum { ROWS = 40000, READS = 120000, WRITES = 10000 };

static struct outcome work(const char *path)
{
    struct outcome out;
    struct timespec start, end;
    sqlite3 *db;
    sqlite3_stmt *read, *write;
    int i, high;
    memset(&out, 0, sizeof out);
    state = 1;
    unlink(path);
    must(sqlite3_open(path, &db) == SQLITE_OK, "no database");
    out.before = resident();
    sql(db, "PRAGMA page_size = 4096; PRAGMA cache_size = 10000; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, body BLOB);"
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 40000)"
            "INSERT INTO t SELECT i, i * 7, zeroblob(1400) FROM c;");
    must(sqlite3_prepare_v2(db, "SELECT n, length(body) FROM t WHERE id = ?", -1, &read, NULL) == SQLITE_OK
             && sqlite3_prepare_v2(db, "UPDATE t SET n = n + 1 WHERE id = ?", -1, &write, NULL) == SQLITE_OK,
         "no statement");
    sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_HIT, &i, &high, 1);
    sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_MISS, &i, &high, 1);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    sql(db, "BEGIN");
    for (i = 0; i < READS + WRITES; i++) {
        /* Most of them to a quarter of the rows. */
        const unsigned row = 1 + (next(4) ? next(ROWS / 4) : next(ROWS));
        sqlite3_stmt *statement = i % 13 == 0 ? write : read;
        sqlite3_bind_int(statement, 1, (int)row);
        if (sqlite3_step(statement) == SQLITE_ROW)
            out.sum += sqlite3_column_int(statement, 0) + sqlite3_column_int(statement, 1);
        sqlite3_reset(statement);
    }
    sql(db, "COMMIT");
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    out.seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_HIT, &out.hits, &high, 0);
    sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_MISS, &out.misses, &high, 0);
    out.full = resident();
    sqlite3_db_release_memory(db);
    out.shrunk = resident();
    sqlite3_finalize(read);
    sqlite3_finalize(write);
    must(sqlite3_close(db) == SQLITE_OK, "the database is still in use");
    unlink(path);
    return out;
}

static struct outcome in_a_process(int ours)
{
    struct outcome out;
    int pipes[2], status;
    char path[64];
    pid_t child;
    snprintf(path, sizeof path, "/tmp/freehold-sqlite-%ld-%d.db", (long)getpid(), ours);
    must(pipe(pipes) == 0, "no pipe");
    child = fork();
    if (child == 0) {
        if (ours)
            must(sqlite3_config(SQLITE_CONFIG_PCACHE2, &methods) == SQLITE_OK, "SQLite takes no page cache");
        out = work(path);
        if (ours) {
            must(freehold_arena_validate(arena, NULL) == FREEHOLD_STATUS_OK, "the arena is broken");
            must(freehold_arena_free_frame_count(arena) == (1u << 30) / 4096, "pages were lost");
        }
        sqlite3_shutdown();
        must(write(pipes[1], &out, sizeof out) == sizeof out, "no answer");
        _exit(0);
    }
    close(pipes[1]);
    must(child > 0 && read(pipes[0], &out, sizeof out) == sizeof out, "the work failed");
    close(pipes[0]);
    waitpid(child, &status, 0);
    must(status == 0, "the work failed");
    printf("%-10s %8d hits %7d misses  %6.0f statements/ms of CPU  %6ld KiB full  %6ld KiB after release\n",
           ours ? "freehold" : "sqlite", out.hits, out.misses, (READS + WRITES) / out.seconds / 1000, out.full - out.before,
           out.shrunk - out.before);
    fflush(stdout);
    return out;
}

int main(void)
{
    const struct outcome theirs = in_a_process(0), ours = in_a_process(1);
    must(ours.sum == theirs.sum, "other rows were read");
    must(abs(ours.misses - theirs.misses) <= theirs.misses / 100, "other pages were kept");
    /* 40 MB of pages; what is left are the C library's small pieces, mostly, in both. */
    must(ours.full - ours.before > 40000 && ours.shrunk - ours.before < 4000, "memory was not given back");
    printf("sqlite_cache: all right\n");
    return 0;
}
