/* RocksDB's block cache in an arena, by its MemoryAllocator interface: blocks are frames, and what
 * the cache gives up goes back to the system when the arena is trimmed.
 *
 *     c++ -O2 -std=c++17 rocksdb_cache.cpp $(pkg-config --cflags --libs freehold) -lrocksdb
 *
 * One piece of work is done again and again, each time in a process of its own: with blocks from
 * malloc, from jemalloc (preloaded, so that all of RocksDB has it; left out where there is none),
 * and from an arena, with malloc for everything else: `freehold` gives back free runs of 4 frames
 * and more, `freehold-1` every free frame. A database is written and compacted; then keys are read,
 * mostly a quarter of them, through a cache of 64 MiB; then the cache shrinks to 4 MiB, free memory
 * is given back by whatever call there is for that, and some more is read. What is compared is the
 * CPU time of a read and what is resident.
 */
#include <freehold.hpp>

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/memory_allocator.h>
#include <rocksdb/statistics.h>
#include <rocksdb/table.h>

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

/* There where jemalloc is. */
extern "C" int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

namespace {

void must(bool right, const std::string &what)
{
    if (!right) {
        std::fprintf(stderr, "rocksdb_cache: %s\n", what.c_str());
        std::exit(1);
    }
}

void must(const rocksdb::Status &status) { must(status.ok(), status.ToString()); }

/* Blocks as frames. RocksDB frees by pointer alone, so that the length of each is kept beside the
 * arena. What is smaller than a frame, and what the arena has no room for, is malloc's. */
class Blocks : public rocksdb::MemoryAllocator {
public:
    /* Of free runs in blocks of 2 MiB that are in use, those of `least` frames and more are given
     * back. */
    Blocks(std::uint64_t bytes, std::uint64_t least)
        : arena_(make(bytes, least)), range_(freehold_arena_range(arena_.get()))
    {
        lengths_.resize(range_.end - range_.start);
    }

    const char *Name() const override { return "freehold"; }

    void *Allocate(std::size_t size) override
    {
        const std::uint64_t count = (size + freehold::frame_size - 1) / freehold::frame_size;
        freehold_frames frames;
        if (size < freehold::frame_size
            || freehold_arena_frames(arena_.get(), count, &frames, nullptr) != FREEHOLD_STATUS_OK)
            return std::malloc(size);
        lengths_[frames.pfn - range_.start] = static_cast<std::uint32_t>(count);
        return frames.memory;
    }

    void Deallocate(void *block) override
    {
        const std::uint64_t pfn = freehold_arena_pfn_of(arena_.get(), block);
        if (pfn == FREEHOLD_NO_PFN)
            std::free(block);
        else
            must(freehold_arena_free_range(arena_.get(), pfn, pfn + length(pfn), nullptr)
                     == FREEHOLD_STATUS_OK,
                 "a free was refused");
    }

    std::size_t UsableSize(void *block, std::size_t size) const override
    {
        const std::uint64_t pfn = freehold_arena_pfn_of(arena_.get(), block);
        return pfn == FREEHOLD_NO_PFN ? size : length(pfn) * freehold::frame_size;
    }

    const freehold::Arena &arena() const { return arena_; }

private:
    static freehold_arena *make(std::uint64_t bytes, std::uint64_t least)
    {
        freehold_arena *arena = nullptr;
        freehold_error error;
        freehold_arena_options options{};
        options.size = sizeof options;
        options.bytes = bytes;
        options.least_run = least;
        if (freehold_arena_new_with(&options, &arena, &error) != FREEHOLD_STATUS_OK)
            throw freehold::Error(error);
        return arena;
    }

    std::uint64_t length(std::uint64_t pfn) const { return lengths_[pfn - range_.start]; }

    freehold::Arena arena_;
    freehold_frame_range range_;
    /* Of the block that starts at each frame; written by whoever has the frame. */
    std::vector<std::uint32_t> lengths_;
};

long resident()
{
    long pages = 0;
    std::FILE *file = std::fopen("/proc/self/statm", "r");
    must(file && std::fscanf(file, "%*s %ld", &pages) == 1, "no /proc");
    std::fclose(file);
    return pages * 4;
}

double cpu_seconds()
{
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

unsigned long long state = 1;

unsigned next(unsigned below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<unsigned>((state >> 33) % below);
}

constexpr unsigned keys = 40000, reads = 150000, reads_at_night = 5000;
constexpr std::size_t day = 64 << 20, night = 4 << 20;

std::string key_of(unsigned key)
{
    char text[16];
    std::snprintf(text, sizeof text, "%08u", key);
    return text;
}

unsigned long read_some(rocksdb::DB &db, unsigned count)
{
    unsigned long sum = 0;
    rocksdb::PinnableSlice value;
    for (unsigned i = 0; i < count; i++) {
        const unsigned key = next(4) ? next(keys / 4) : next(keys);
        value.Reset();
        must(db.Get(rocksdb::ReadOptions(), db.DefaultColumnFamily(), key_of(key), &value));
        sum += value.size() + static_cast<unsigned char>(value[0]);
    }
    return sum;
}

void give_back(const std::shared_ptr<Blocks> &blocks)
{
    if (blocks)
        blocks->arena().trim();
    if (mallctl)
        mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);
    else
        malloc_trim(0);
}

void work(const std::string &name)
{
    const bool ours = name.rfind("freehold", 0) == 0;
    const std::string path = "/tmp/freehold-rocksdb-" + std::to_string(getpid());
    std::shared_ptr<Blocks> blocks;
    if (ours)
        blocks = std::make_shared<Blocks>(std::uint64_t{256} << 20, name == "freehold-1" ? 1 : 4);
    auto cache = rocksdb::NewLRUCache(day, 0, false, 0.0, blocks);
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = cache;
    table.block_size = 16 << 10;
    rocksdb::Options options;
    options.create_if_missing = true;
    options.compression = rocksdb::kNoCompression;
    options.statistics = rocksdb::CreateDBStatistics();
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB *opened = nullptr;
    must(rocksdb::DB::Open(options, path, &opened));
    std::unique_ptr<rocksdb::DB> db(opened);
    for (unsigned key = 0; key < keys; key++)
        must(db->Put(rocksdb::WriteOptions(), key_of(key),
                     std::string(100 + next(6000), static_cast<char>('a' + key % 26))));
    must(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
    /* What is subtracted has settled: nothing works behind, and a first read lets go of the tables
     * that were written, 38 MiB. */
    rocksdb::CancelAllBackgroundWork(db.get(), true);
    std::string value;
    must(db->Get(rocksdb::ReadOptions(), key_of(0), &value));
    give_back(blocks);
    const long before = resident();
    must(options.statistics->Reset());
    const double start = cpu_seconds();
    unsigned long sum = read_some(*db, reads);
    const double seconds = cpu_seconds() - start;
    const auto hits = options.statistics->getTickerCount(rocksdb::BLOCK_CACHE_HIT);
    const auto misses = options.statistics->getTickerCount(rocksdb::BLOCK_CACHE_MISS);
    const long full = resident();
    cache->SetCapacity(night);
    give_back(blocks);
    sum += read_some(*db, reads_at_night);
    const long shrunk = resident();
    std::uint64_t in_arena = 0;
    if (ours) {
        const freehold_arena *arena = blocks->arena().get();
        const freehold_frame_range all = freehold_arena_range(arena);
        must(freehold_arena_frames_in_memory(arena, all.start, all.end, &in_arena, nullptr)
                 == FREEHOLD_STATUS_OK,
             "the kernel does not say what is in memory");
    }
    std::printf("%-10s %8llu hits %7llu misses  %6.2f us of CPU a read  %6ld KiB full  %6ld KiB "
                "after shrinking, %6ld in the arena  sum %lu\n",
                name.c_str(), static_cast<unsigned long long>(hits),
                static_cast<unsigned long long>(misses), seconds * 1e6 / reads, full - before,
                shrunk - before, static_cast<long>(in_arena * 4), sum);
    db.reset();
    must(rocksdb::DestroyDB(path, options));
    table.block_cache.reset();
    options.table_factory.reset();
    cache.reset();
    if (ours) {
        const auto stats = blocks->arena().stats();
        must(stats.frames_free == stats.frames, "frames were lost");
    }
}

/* The work in a process of its own, with a library before all others or none; its sum. */
std::string in_a_process(const char *program, const char *name, const char *preload)
{
    const std::string command =
        (preload ? "LD_PRELOAD=" + std::string(preload) + " " : "") + "'" + program + "' " + name;
    std::FILE *child = popen(command.c_str(), "r");
    must(child != nullptr, "no process");
    char line[256] = "";
    must(std::fgets(line, sizeof line, child) != nullptr && pclose(child) == 0,
         std::string("the work failed: ") + name);
    std::string said = line;
    const auto sum = said.rfind("  sum ");
    must(sum != std::string::npos, "the work said " + said);
    std::printf("%s\n", said.substr(0, sum).c_str());
    std::fflush(stdout);
    return said.substr(sum);
}

}  // namespace

int main(int count, char **words)
try {
    if (count > 1) {
        work(words[1]);
        return 0;
    }
    const std::string theirs = in_a_process(words[0], "malloc", nullptr);
    must(in_a_process(words[0], "freehold", nullptr) == theirs, "other values were read");
    must(in_a_process(words[0], "freehold-1", nullptr) == theirs, "other values were read");
    if (std::system("LD_PRELOAD=libjemalloc.so.2 /bin/true 2>&1 | grep -q . ") != 0)
        must(in_a_process(words[0], "jemalloc", "libjemalloc.so.2") == theirs,
             "other values were read");
    else
        std::printf("SKIPPED: there is no libjemalloc.so.2 to preload\n");
    std::printf("rocksdb_cache: all right\n");
    return 0;
} catch (const freehold::Error &error) {
    std::fprintf(stderr, "rocksdb_cache: %s\n", error.what());
    return 1;
}
