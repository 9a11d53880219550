#pragma once

// The threads of a call.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif
#include "products.h"

namespace {

#ifdef _OPENMP
inline int thread_number() { return omp_get_thread_num(); }

// Call work(0) … work(threads − 1), each on a thread of its own.
template <class F> void on_threads(int threads, F work) {
#pragma omp parallel num_threads(threads)
    work(omp_get_thread_num());
}
#else
inline thread_local int own_number = 0;
inline int thread_number() { return own_number; }

// Threads that wait for work, where the compiler has no OpenMP. They are never joined: they end with the process.
class Workers {
  public:
    static Workers &all() {
        static Workers &made = *new Workers;
        return made;
    }
    void run(int threads, const std::function<void(int)> &work) {
        std::unique_lock<std::mutex> alone(busy, std::try_to_lock);
        // Where another call has the workers, this thread does all pieces: a `Team` waits for no thread that has not come.
        if (!alone || threads == 1) return work(0);
        {
            const std::lock_guard<std::mutex> changing(changes);
            for (; count < threads - 1; ++count) std::thread([this, number = count + 1, seen = turn] { serve(number, seen); }).detach();
            job = &work, wanted = threads, left = threads - 1, ++turn;
        }
        wake.notify_all();
        work(0);
        std::unique_lock<std::mutex> changing(changes);
        finished.wait(changing, [&] { return left == 0; });
    }

  private:
    void serve(int number, long seen) {
        own_number = number;
        for (std::unique_lock<std::mutex> changing(changes);;) {
            wake.wait(changing, [&] { return turn != seen; });
            seen = turn;
            if (number >= wanted) continue;
            changing.unlock();
            (*job)(number);
            changing.lock();
            if (--left == 0) finished.notify_one();
        }
    }

    std::mutex busy, changes;
    std::condition_variable wake, finished;
    const std::function<void(int)> *job = nullptr;
    int count = 0, wanted = 0, left = 0;
    long turn = 0;
};

template <class F> void on_threads(int threads, F work) { Workers::all().run(threads, work); }
#endif

// While an object lives, this thread treats numbers below the normal range as 0: arithmetic with them is many times slower.
class FlushTiny {
#if defined(__SSE2__)
  public:
    FlushTiny() : before(_mm_getcsr()) { _mm_setcsr(before | 0x8040); }
    ~FlushTiny() { _mm_setcsr(before); }

  private:
    const unsigned before;
#endif
};

// The threads of a call, which pass through the same shares of work, one behind the other. Each has a part of a share, whose
// pieces lie side by side in memory, and then takes what others have left of theirs. A share is over when its pieces are done,
// not when all threads have come: where other programs run, a thread may not come for milliseconds. A late thread finds no piece
// left and goes on. Before that it may read numbers while other threads write them. It uses such numbers for no piece.
class Team {
  public:
    explicit Team(int threads) : threads(threads), passed(threads), parts(threads) {}

    // Call work(0) … work(threads − 1), each on a thread of its own.
    template <class F> void run(F work) {
        const uint64_t begin = over.load() / SHARE;
        for (Passed &one : passed) one.shares = begin;
        on_threads(threads, [&](int number) {
            [[maybe_unused]] const FlushTiny flush;
            [[maybe_unused]] const TileRegisters registers;
            work(number);
        });
    }

    // Share the calls work(0) … work(count − 1) among all threads, each of which calls this. Returns when all are done.
    template <class F> void share(long count, F work) {
        if (!count) return;
        const int self = thread_number();
        const uint64_t first = passed[self].shares++ * SHARE;
        long made = 0;
        for (int i = 0; i < threads; ++i) {
            const long part = (self + i) % threads, begin = count * part / threads;
            const auto size = static_cast<uint64_t>(count * (part + 1) / threads - begin);
            std::atomic<uint64_t> &taken = parts[part].taken;
            for (uint64_t next = taken.load(std::memory_order_acquire); next - first < size;) {
                const uint64_t some = std::max<uint64_t>(1, (size - (next - first)) / 2); // to take a piece may cost more than its work
                if (!taken.compare_exchange_weak(next, next + some, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
                for (uint64_t j = next - first; j < next - first + some; ++j) work(begin + static_cast<long>(j));
                made += static_cast<long>(some);
                next = taken.load(std::memory_order_acquire);
            }
        }
        if (made && done.fetch_add(made, std::memory_order_acq_rel) + made == count) {
            done.store(0, std::memory_order_relaxed);
            for (Part &part : parts) part.taken.store(first + SHARE, std::memory_order_relaxed);
            over.store(first + SHARE, std::memory_order_release);
        }
        for (int looks = 0; over.load(std::memory_order_acquire) == first; ++looks) {
            if (looks < PATIENCE) pause();
            else if (looks < PATIENCE + YIELDS) std::this_thread::yield();
            else std::this_thread::sleep_for(NAP);
        }
    }

  private:
    static constexpr uint64_t SHARE = uint64_t{1} << 32; // the pieces of a share are fewer
    static constexpr int PATIENCE = 1000, YIELDS = 100;  // looks before a waiting thread yields, and before it sleeps between looks
    static constexpr auto NAP = std::chrono::microseconds(50);
    struct alignas(64) Passed {
        uint64_t shares;
    };
    struct alignas(64) Part {
        std::atomic<uint64_t> taken{0}; // shares that are over · SHARE + pieces taken of the next share
    };

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }

    const int threads; // the most that take part
    std::vector<Passed> passed; // by each thread
    std::vector<Part> parts;    // of a share, one for each thread
    alignas(64) std::atomic<uint64_t> over{0}; // shares that are over · SHARE
    alignas(64) std::atomic<long> done{0};     // pieces of this share
};

} // namespace
