/* SQLite's page cache in an arena over a day: it grows in the morning and shrinks in the evening,
 * to one page in twenty. The pages that are left move, so that memory goes back as whole blocks.
 *
 *     c++ -O2 -std=c++17 sqlite_cache.cpp $(pkg-config --cflags --libs freehold) -lsqlite3
 *     ./a.out                                  in an arena, blocks are emptied after a shrink
 *     ./a.out stay                             in an arena, pages stay where they are
 *     LD_PRELOAD=libjemalloc.so.2 ./a.out own  SQLite's own cache, by the malloc there is
 *
 * A page that nobody has pinned has one owner, the cache, but SQLite has left pointers to it in the
 * page's `pExtra`: the page itself, its memory, and what the B-tree knows of it. Those three words
 * are private to SQLite. They are checked at each move, and where they are not as expected the page
 * stays. (By the public contract alone, `pExtra` zeroed, SQLite would read the page anew.)
 */
#include <freehold.h>
#include <sqlite3.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void must(bool right, const char *what)
{
    if (!right) {
        std::fprintf(stderr, "sqlite_cache: %s\n", what);
        std::exit(1);
    }
}

struct Page {
    sqlite3_pcache_page base; // first: what SQLite has is what we have
    freehold_frames frames;
    unsigned key;
    Page *newer, *older; // of those that nobody has pinned; null while pinned
};

freehold_arena *arena;
Page **owners; // by frame

/* Pages by number, and the unpinned ones in a ring. What belongs to a page beside its memory is in
 * a slot of a table of its own, whose end goes back to the system too. */
class Cache {
  public:
    Cache(int extra, bool purgeable)
        : purgeable_(purgeable), slot_((sizeof(Page) + static_cast<size_t>(extra) + 15) / 16 * 16)
    {
        void *slots = mmap(nullptr, slot_ * most_slots, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        must(slots != MAP_FAILED, "no addresses");
        slots_ = static_cast<char *>(slots);
        ring_.newer = ring_.older = &ring_;
    }

    ~Cache()
    {
        truncate(0);
        munmap(slots_, slot_ * most_slots);
    }

    void resize(unsigned pages)
    {
        most_ = pages;
        if (purgeable_)
            shrink(most_);
    }

    unsigned count() const { return count_; }

    Page *fetch(unsigned key, int create)
    {
        if (key >= pages_.size())
            pages_.resize(std::max<size_t>(key + 1, pages_.size() * 2));
        if (Page *page = pages_[key]) {
            pin(page);
            return page;
        }
        // 1: only where that is easy, so not where nearly all are in use.
        if (create == 0 || (create == 1 && purgeable_ && count_ - unpinned_ >= most_ / 10 * 9))
            return nullptr;
        if (purgeable_ && unpinned_ > 0 && count_ + 1 >= most_)
            drop(ring_.newer);
        return make(key);
    }

    void unpin(Page *page, bool discard)
    {
        if (discard || (purgeable_ && count_ > most_))
            return drop(page);
        page->older = ring_.older, page->newer = &ring_;
        relink(page);
        unpinned_++;
    }

    void rekey(Page *page, unsigned key)
    {
        if (pages_[key])
            drop(pages_[key]);
        pages_[page->key] = nullptr;
        pages_[page->key = key] = page;
    }

    void truncate(unsigned from)
    {
        for (size_t key = from; key < pages_.size(); key++)
            if (pages_[key])
                drop(pages_[key]);
    }

    void shrink(unsigned leave)
    {
        while (count_ > leave && unpinned_ > 0)
            drop(ring_.newer);
        close_holes();
    }

    /* The mover. */
    static bool move(void *, void *from, void *to)
    {
        Page *&owner = owner_of(from), *page = owner;
        if (!page || !knows(page))
            return false;
        std::memcpy(to, from, 4096);
        page->base.pBuf = page->frames.memory = to;
        page->frames.pfn = freehold_arena_pfn_of(arena, to);
        owner = nullptr;
        owner_of(to) = page;
        tell(page);
        return true;
    }

  private:
    static constexpr size_t most_slots = 1 << 18;

    Page *slot(size_t at) { return reinterpret_cast<Page *>(slots_ + at * slot_); }

    static Page *&owner_of(const void *memory)
    {
        return owners[freehold_arena_pfn_of(arena, memory) - freehold_arena_range(arena).start];
    }

    /* Of SQLite's `PgHdr`: the page, its memory, and the B-tree's own behind it. */
    static bool knows(const Page *page)
    {
        void *const *words = static_cast<void *const *>(page->base.pExtra);
        return page->newer && (!words[0] || (words[1] == page->base.pBuf && words[2] > words));
    }

    /* SQLite learns where a page is; the B-tree's first eight bytes, zeroed, have it look again. */
    static void tell(Page *page)
    {
        void **words = static_cast<void **>(page->base.pExtra);
        if (!words[0])
            return;
        const auto behind = static_cast<char *>(words[2]) - static_cast<char *>(words[0]);
        words[2] = reinterpret_cast<char *>(page) + behind;
        words[0] = page, words[1] = page->base.pBuf;
        std::memset(words[2], 0, 8);
    }

    /* Slots move from the end into holes, and the end goes back to the system. */
    void close_holes()
    {
        std::sort(holes_.begin(), holes_.end(), std::greater<Page *>());
        size_t passed = 0;
        while (passed < holes_.size()) {
            Page *last = slot(used_ - 1);
            if (last == holes_[passed]) {
                passed++;
            } else if (last->newer && knows(last)) {
                Page *page = holes_.back();
                holes_.pop_back();
                std::memcpy(static_cast<void *>(page), last, slot_);
                page->base.pExtra = page + 1;
                pages_[page->key] = owner_of(page->base.pBuf) = page;
                relink(page);
                tell(page);
            } else {
                break; // pinned
            }
            used_--;
        }
        holes_.erase(holes_.begin(), holes_.begin() + static_cast<std::ptrdiff_t>(passed));
        size_t end = (used_ * slot_ + 4095) / 4096 * 4096;
        madvise(slots_ + end, slot_ * most_slots - end, MADV_DONTNEED);
    }

    static void relink(Page *page) { page->older->newer = page->newer->older = page; }

    void pin(Page *page)
    {
        if (!page->newer)
            return;
        page->newer->older = page->older;
        page->older->newer = page->newer;
        page->newer = page->older = nullptr;
        unpinned_--;
    }

    Page *make(unsigned key)
    {
        freehold_frames frames;
        if (holes_.empty() && used_ == most_slots)
            return nullptr;
        if (freehold_arena_frames(arena, 1, &frames, nullptr) != FREEHOLD_STATUS_OK)
            return nullptr;
        Page *page = holes_.empty() ? slot(used_++) : holes_.back();
        if (!holes_.empty())
            holes_.pop_back();
        std::memset(static_cast<void *>(page), 0, slot_);
        page->base.pBuf = frames.memory, page->base.pExtra = page + 1;
        page->frames = frames, page->key = key;
        pages_[key] = owner_of(frames.memory) = page;
        count_++;
        return page;
    }

    void drop(Page *page)
    {
        pin(page);
        pages_[page->key] = owner_of(page->base.pBuf) = nullptr;
        must(freehold_arena_free_frames(arena, &page->frames, nullptr) == FREEHOLD_STATUS_OK,
             "a page of nobody");
        holes_.push_back(page);
        count_--;
    }

    bool purgeable_;
    unsigned most_ = 100, count_ = 0, unpinned_ = 0;
    std::vector<Page *> pages_, holes_; // by number; slots of no page
    Page ring_{};                       // older: the newest, newer: the oldest
    size_t slot_, used_ = 0;
    char *slots_;
};

/* What SQLite calls: a cache for each file, and for temporary tables. */
Cache *of(sqlite3_pcache *cache) { return reinterpret_cast<Cache *>(cache); }

sqlite3_pcache_methods2 methods()
{
    sqlite3_pcache_methods2 to{};
    to.iVersion = 1;
    to.xInit = [](void *) { return SQLITE_OK; };
    to.xCreate = [](int bytes, int extra, int purgeable) {
        Cache *made = bytes == 4096 ? new Cache(extra, purgeable != 0) : nullptr;
        return reinterpret_cast<sqlite3_pcache *>(made);
    };
    to.xCachesize = [](sqlite3_pcache *cache, int pages) {
        of(cache)->resize(static_cast<unsigned>(pages));
    };
    to.xPagecount = [](sqlite3_pcache *cache) { return static_cast<int>(of(cache)->count()); };
    to.xFetch = [](sqlite3_pcache *cache, unsigned key, int create) {
        return reinterpret_cast<sqlite3_pcache_page *>(of(cache)->fetch(key, create));
    };
    to.xUnpin = [](sqlite3_pcache *cache, sqlite3_pcache_page *page, int discard) {
        of(cache)->unpin(reinterpret_cast<Page *>(page), discard != 0);
    };
    to.xRekey = [](sqlite3_pcache *cache, sqlite3_pcache_page *page, unsigned, unsigned key) {
        of(cache)->rekey(reinterpret_cast<Page *>(page), key);
    };
    to.xTruncate = [](sqlite3_pcache *cache, unsigned from) { of(cache)->truncate(from); };
    to.xDestroy = [](sqlite3_pcache *cache) { delete of(cache); };
    to.xShrink = [](sqlite3_pcache *cache) { of(cache)->shrink(0); };
    return to;
}

// ---- The day.

constexpr int rows = 60000, day = 50000, night = 2500, reads = 60000;

double resident()
{
    long pages = 0;
    FILE *file = std::fopen("/proc/self/statm", "r");
    must(file && std::fscanf(file, "%*s %ld", &pages) == 1, "no /proc");
    std::fclose(file);
    return static_cast<double>(pages) / 256;
}

void sql(sqlite3 *db, const std::string &text)
{
    char *message = nullptr;
    sqlite3_exec(db, text.c_str(), nullptr, nullptr, &message);
    must(!message, message);
}

/* Each row has a page of its own, and its number times 7. */
sqlite3 *database(const std::string &path)
{
    sqlite3 *db;
    must(sqlite3_open(path.c_str(), &db) == SQLITE_OK, "no database");
    unlink(path.c_str());
    sql(db, "PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "PRAGMA cache_size = " + std::to_string(night) + ";"
            "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, body BLOB);"
            "WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < "
            + std::to_string(rows - 1) + ") INSERT INTO t SELECT i, i * 7, zeroblob(3000) FROM c;");
    return db;
}

void read_rows(sqlite3_stmt *statement)
{
    static unsigned long long state = 1;
    for (int i = 0; i < reads; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        const int row = static_cast<int>((state >> 33) % rows);
        sqlite3_bind_int(statement, 1, row);
        must(sqlite3_step(statement) == SQLITE_ROW, "no row");
        must(sqlite3_column_int(statement, 0) == row * 7, "another row");
        sqlite3_reset(statement);
    }
}

/* Moves pages; how many. What is free then goes back by the second pass from now. */
int empty_blocks()
{
    freehold_evacuated done;
    must(freehold_arena_evacuate(arena, 0, UINT64_MAX, Cache::move, nullptr, &done, nullptr)
             == FREEHOLD_STATUS_OK, "no movement");
    freehold_arena_pass(arena, nullptr, nullptr);
    return static_cast<int>(done.frames);
}

} // namespace

int main(int argc, char **argv)
{
    const std::string how = argc > 1 ? argv[1] : "";
    must(how.empty() || how == "stay" || how == "own", "give nothing, stay or own");
    const double before = resident();
    const auto to = methods();
    if (how != "own") {
        must(freehold_arena_new(1 << 30, &arena, nullptr) == FREEHOLD_STATUS_OK, "no arena");
        owners = static_cast<Page **>(std::calloc(1 << 18, sizeof *owners));
        must(owners && sqlite3_config(SQLITE_CONFIG_PCACHE2, &to) == SQLITE_OK, "no page cache");
    }
    sqlite3 *db = database("/tmp/freehold-sqlite-" + std::to_string(getpid()));
    sqlite3_stmt *read;
    must(sqlite3_prepare_v2(db, "SELECT n FROM t WHERE id = ?", -1, &read, nullptr) == SQLITE_OK,
         "no statement");
    std::puts("hour  in use, MiB  resident, MiB  pages moved  pages read");
    double now = 0;
    for (int hour = 0; hour < 24; hour++) {
        const int quarters = std::clamp(hour < 17 ? hour - 6 : 20 - hour, 0, 4);
        const int pages = night + (day - night) * quarters / 4;
        sql(db, "PRAGMA cache_size = " + std::to_string(pages));
        read_rows(read);
        const int moved = how.empty() && hour >= 17 && hour < 21 ? empty_blocks() : 0;
        if (how != "own")
            freehold_arena_pass(arena, nullptr, nullptr);
        int misses, unused;
        sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_MISS, &misses, &unused, 1);
        now = resident() - before;
        std::printf("%4d  %11.1f  %13.1f  %11d  %10d\n", hour, pages / 256.0, now, moved, misses);
    }
    must(!how.empty() || now < night / 256.0 + 10, "memory was not given back");
    sqlite3_finalize(read);
    must(sqlite3_close(db) == SQLITE_OK, "the database is still in use");
    freehold_arena_destroy(&arena, nullptr);
}
