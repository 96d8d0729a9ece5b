/*
 * Freehold for C++17 and later: arenas and frames as types that end by themselves, and failures as
 * exceptions.
 *
 *     freehold::Arena arena(64 << 20);
 *     freehold::Frames frames = arena.zeroed(5);    // 5 neighbouring frames, for any thread
 *     frames.data(), frames.size();                 // bytes; frames.bytes(): a std::span (C++20)
 *
 * Everything here is a call of freehold.h, which says what each costs and who may make it. An arena
 * outlives its frames: destroy it last.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FREEHOLD_HPP
#define FREEHOLD_HPP

#include <freehold.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>

#if __cplusplus >= 202002L
#include <span>
#endif

namespace freehold {

/* Bytes of a frame. */
inline constexpr std::size_t frame_size = 4096;

/* What a call was refused with; `details` has the frame and the numbers. */
class Error : public std::runtime_error {
public:
    explicit Error(const freehold_error &error) : std::runtime_error(error.message), details(error)
    {
    }

    freehold_status status() const noexcept { return details.status; }
    bool is_out_of_memory() const noexcept
    {
        return details.status == FREEHOLD_STATUS_NO_MEMORY ||
               details.status == FREEHOLD_STATUS_LIMIT ||
               (details.status == FREEHOLD_STATUS_OS && details.os_errno == ENOMEM);
    }

    freehold_error details;
};

namespace detail {
/* Makes a call whose last parameter is the error, and throws what it is refused with. */
template <class Call> void check(Call &&call)
{
    freehold_error error;
    if (call(&error) != FREEHOLD_STATUS_OK)
        throw Error(error);
}
}  // namespace detail

/* Neighbouring frames, which go home when this is destroyed, on whichever thread that is. */
class Frames {
public:
    Frames() noexcept = default;
    /* Takes frames over that the C interface has handed out. */
    explicit Frames(const freehold_frames &raw) noexcept : raw_(raw) {}
    Frames(Frames &&other) noexcept : raw_(other.release()) {}
    Frames &operator=(Frames &&other) noexcept
    {
        if (this != &other) {
            reset();
            raw_ = other.release();
        }
        return *this;
    }
    Frames(const Frames &) = delete;
    Frames &operator=(const Frames &) = delete;
    ~Frames() { reset(); }

    std::byte *data() noexcept { return static_cast<std::byte *>(raw_.memory); }
    const std::byte *data() const noexcept { return static_cast<const std::byte *>(raw_.memory); }
    std::size_t size() const noexcept { return static_cast<std::size_t>(raw_.count) * frame_size; }
    std::uint64_t count() const noexcept { return raw_.count; }
    std::uint64_t pfn() const noexcept { return raw_.pfn; }
    explicit operator bool() const noexcept { return raw_.count != 0; }
#if __cplusplus >= 202002L
    std::span<std::byte> bytes() noexcept { return {data(), size()}; }
    std::span<const std::byte> bytes() const noexcept { return {data(), size()}; }
#endif

    /* Keeps the first `frames` and returns the rest. */
    Frames split(std::uint64_t frames)
    {
        freehold_frames rest;
        detail::check([&](freehold_error *error) {
            return freehold_frames_split(&raw_, frames, &rest, error);
        });
        return Frames(rest);
    }

    /* Gives the frames home now. */
    void reset() noexcept
    {
        if (raw_.count != 0)
            freehold_arena_free_frames(raw_.arena, &raw_, nullptr);
        raw_ = freehold_frames{};
    }

    /* The frames for the C interface; nothing frees them by itself any more. */
    freehold_frames release() noexcept { return std::exchange(raw_, freehold_frames{}); }

private:
    freehold_frames raw_{};
};

/* An arena of real memory. */
class Arena {
public:
    explicit Arena(std::uint64_t bytes)
    {
        freehold_arena *made = nullptr;
        detail::check(
            [&](freehold_error *error) { return freehold_arena_new(bytes, &made, error); });
        raw_.reset(made);
    }
    /* Takes an arena over that freehold_arena_new_with has made. */
    explicit Arena(freehold_arena *raw) noexcept : raw_(raw) {}

    /* So many neighbouring frames; what is in them is whatever their last user left. */
    Frames frames(std::uint64_t count) const
    {
        freehold_frames frames;
        detail::check([&](freehold_error *error) {
            return freehold_arena_frames(get(), count, &frames, error);
        });
        return Frames(frames);
    }

    /* So many neighbouring frames, all zero. */
    Frames zeroed(std::uint64_t count) const
    {
        freehold_frames frames;
        detail::check([&](freehold_error *error) {
            return freehold_arena_zeroed(get(), count, &frames, error);
        });
        return Frames(frames);
    }

    /* Gives what is free back to the system. */
    freehold_released trim() const
    {
        freehold_released released;
        detail::check(
            [&](freehold_error *error) { return freehold_arena_trim(get(), &released, error); });
        return released;
    }

    freehold_arena_stats stats() const
    {
        freehold_arena_stats stats;
        detail::check(
            [&](freehold_error *error) { return freehold_arena_read_stats(get(), &stats, error); });
        return stats;
    }

    /* For every call that has no method here. */
    freehold_arena *get() const noexcept { return raw_.get(); }

private:
    struct End {
        void operator()(freehold_arena *arena) const noexcept
        {
            freehold_arena_destroy(&arena, nullptr);
        }
    };
    std::unique_ptr<freehold_arena, End> raw_;
};

}  // namespace freehold

#endif
