#pragma once

// The threads of a call.

#include <atomic>
#include <chrono>
#include <thread>

#ifdef _OPENMP
#include <omp.h>
#endif
#include "products.h"

namespace {

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

// The threads of a call. Each takes the next piece of work when it is free, so that a thread that another program delays
// delays no other thread. A thread that waits long gives way, since on a busy machine the others may need its core: after
// PATIENCE looks it yields, and after YIELDS more it sleeps between looks.
class Team {
  public:
    explicit Team(int threads) : threads(threads) {}

    // Call work(0) … work(threads − 1), each on a thread of its own.
    template <class F> void run(F work) {
#pragma omp parallel num_threads(threads)
        {
            const FlushTiny flush;
            [[maybe_unused]] const TileRegisters registers;
#ifdef _OPENMP
#pragma omp single
            threads = omp_get_num_threads(); // may be fewer than asked
            work(omp_get_thread_num());
#else
            threads = 1;
            work(0);
#endif
        }
    }

    // Share the calls work(0) … work(count − 1) among all threads, each of which calls this. Returns when all are done.
    template <class F> void share(long count, F work) {
        const int now = phase.load(std::memory_order_relaxed);
        for (long i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(i);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived.store(0, std::memory_order_relaxed);
            next.store(0, std::memory_order_relaxed);
            phase.store(now + 1, std::memory_order_release);
            return;
        }
        for (int looks = 0; phase.load(std::memory_order_acquire) == now; ++looks) {
            if (looks < PATIENCE) pause();
            else if (looks < PATIENCE + YIELDS) std::this_thread::yield();
            else std::this_thread::sleep_for(NAP);
        }
    }

  private:
    static constexpr int PATIENCE = 1000, YIELDS = 100;
    static constexpr auto NAP = std::chrono::microseconds(50);
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }

    int threads; // that take part
    alignas(64) std::atomic<long> next{0};
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<int> phase{0};
};

} // namespace
