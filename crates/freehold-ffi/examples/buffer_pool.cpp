// A pool of buffers for C++: page frames behind RAII, so that a buffer goes home by itself on whichever thread drops it.
//
//   make -C crates/freehold-ffi check     builds and runs it, or after an installation:
//   c++ -std=c++17 buffer_pool.cpp $(pkg-config --cflags --libs freehold) -lpthread -o buffer_pool && ./buffer_pool
#include <freehold.h>

#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

class Trouble : public std::runtime_error {
public:
    explicit Trouble(const freehold_error &error) : std::runtime_error(error.message), status(error.status) {}
    freehold_status status;
};

class Pool {
public:
    explicit Pool(std::uint64_t bytes)
    {
        freehold_arena *made = nullptr;
        freehold_error error;
        if (freehold_arena_new(bytes, &made, &error) != FREEHOLD_STATUS_OK)
            throw Trouble(error);
        arena_.reset(made);
    }
    freehold_arena *get() const { return arena_.get(); }

private:
    struct End {
        void operator()(freehold_arena *arena) const { freehold_arena_destroy(&arena, nullptr); }
    };
    std::unique_ptr<freehold_arena, End> arena_;
};

class Buffer {
public:
    Buffer(const Pool &pool, std::uint64_t frames) : arena_(pool.get())
    {
        freehold_error error;
        if (freehold_arena_zeroed(arena_, frames, &frames_, &error) != FREEHOLD_STATUS_OK)
            throw Trouble(error);
    }
    Buffer(Buffer &&other) noexcept : arena_(other.arena_), frames_(std::exchange(other.frames_, freehold_frames{})) {}
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    Buffer &operator=(Buffer &&) = delete;
    // No frames are fine, so one that was moved from needs no care.
    ~Buffer() { freehold_arena_free_frames(arena_, &frames_, nullptr); }

    char *data() const { return static_cast<char *>(frames_.memory); }
    std::size_t size() const { return frames_.count * 4096; }

private:
    freehold_arena *arena_;
    freehold_frames frames_{};
};

int main()
try {
    Pool pool(64 << 20);
    {
        std::vector<Buffer> buffers;
        for (std::uint64_t i = 1; i <= 50; i++) {
            buffers.emplace_back(pool, i);
            std::memset(buffers.back().data(), static_cast<int>(i), buffers.back().size());
        }
        std::thread([taken = std::move(buffers)]() mutable { taken.clear(); }).join();
    }
    freehold_arena_stats stats;
    freehold_error error;
    if (freehold_arena_drain(pool.get(), &error) != FREEHOLD_STATUS_OK ||
        freehold_arena_read_stats(pool.get(), &stats, &error) != FREEHOLD_STATUS_OK)
        throw Trouble(error);
    const std::uint64_t free = freehold_arena_free_frame_count(pool.get());
    std::cout << free << " of " << stats.frames << " frames free\n";
    try {
        Buffer too_large(pool, stats.frames + 1);
        return 1;
    } catch (const Trouble &trouble) {
        std::cout << "too large: " << trouble.what() << '\n';
        return free == stats.frames && trouble.status == FREEHOLD_STATUS_NO_MEMORY ? 0 : 1;
    }
} catch (const Trouble &trouble) {
    std::cerr << trouble.what() << '\n';
    return 1;
}
