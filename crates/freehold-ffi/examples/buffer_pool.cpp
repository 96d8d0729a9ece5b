// A pool of buffers for C++: page frames behind RAII, so that a buffer goes home by itself on
// whichever thread drops it.
//
//   make -C crates/freehold-ffi check     builds and runs it, or after an installation:
//   c++ -std=c++17 buffer_pool.cpp $(pkg-config --cflags --libs freehold) -lpthread && ./a.out
#include <freehold.hpp>

#include <cstring>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

static bool is_full(const freehold::Arena &arena, std::uint64_t frames)
{
    try {
        freehold::Frames too_large = arena.frames(frames);
        return false;
    } catch (const freehold::Error &error) {
        std::cout << "too large: " << error.what() << '\n';
        return arena.stats().frames_used == 0 && error.is_out_of_memory();
    }
}

int main()
try {
    freehold::Arena pool(64 << 20);
    {
        std::vector<freehold::Frames> buffers;
        for (std::uint64_t i = 1; i <= 50; i++) {
            buffers.push_back(pool.zeroed(i));
            std::memset(buffers.back().data(), static_cast<int>(i), buffers.back().size());
        }
        // Cut and moved: what was moved from has no frames and needs no care.
        freehold::Frames rest = buffers[9].split(4);
        buffers[0] = std::move(buffers[1]);
        if (buffers[9].count() != 4 || rest.count() != 6 || buffers[1] || buffers[0].count() != 2)
            return 1;
        std::thread([taken = std::move(buffers)]() mutable { taken.clear(); }).join();
    }
    const std::uint64_t frames = pool.stats().frames;
    std::cout << pool.stats().frames_free << " of " << frames << " frames free, "
              << pool.trim().bytes << " bytes back to the system\n";
    // No more than half of this one may be in memory.
    freehold_arena_options options{};
    options.size = sizeof options;
    options.bytes = 64 << 20;
    options.resident_limit = 32 << 20;
    freehold_arena *limited = nullptr;
    if (freehold_arena_new_with(&options, &limited, nullptr) != FREEHOLD_STATUS_OK)
        return 1;
    const freehold::Arena half(limited);
    return is_full(pool, frames + 1) && is_full(half, frames) ? 0 : 1;
} catch (const freehold::Error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
