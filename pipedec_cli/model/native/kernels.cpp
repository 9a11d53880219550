// The compiled kernels, as Python calls them; `library.py` mirrors what is here.

#include <new>

#include "decoder.h"
#include "encoder.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace {

template <class E>
void pack(const void *matrix, long outputs, long inputs, Word *panels, long first, long every, int threads) {
    const long count = (inputs + E::NUMBERS - 1) / E::NUMBERS;
#pragma omp parallel for num_threads(threads)
    for (long p = 0; p < round_up(outputs, PANEL) / PANEL; ++p) {
        Word *panel = panels + (first + p * every) * count * PANEL;
        for (long j = 0; j < PANEL; ++j)
            for (long u = 0; u < count; ++u) {
                const long o = p * PANEL + j, i = u * E::NUMBERS;
                auto number = [&](long k) {
                    return o < outputs && k < inputs ? E::get(matrix, o * inputs + k) : 0.0f;
                };
                panel[u * PANEL + j] = E::pack(number(i), number(i + E::NUMBERS - 1));
            }
    }
}

} // namespace

extern "C" {

// Outputs side by side in a panel.
int64_t pipedec_panel() { return PANEL; }

// What this was compiled with and for.
const char *pipedec_features() {
    return
#if defined(__AVX512F__)
        "AVX-512"
#elif defined(__AVX2__)
        "AVX2"
#elif defined(__aarch64__)
        "NEON"
#else
        "plain vectors"
#endif
#ifndef _OPENMP
        ", one thread"
#endif
        ;
}

// Ask for large pages, so that reading on is not held up by looking addresses up. A refusal does no harm.
void pipedec_use_large_pages(void *memory, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

// Read memory from front to back, each thread its own part, as a step reads its weights; the sum keeps the reading from
// being left out. A whole number of vectors for each thread is read.
int64_t pipedec_read(const void *memory, int64_t bytes, int64_t threads) {
    constexpr int64_t AT_ONCE = 8;
    const int64_t each = bytes / threads / (AT_ONCE * sizeof(Ints)) * (AT_ONCE * sizeof(Ints));
    int64_t sum = 0;
#pragma omp parallel for num_threads(static_cast<int>(threads)) schedule(static, 1) reduction(+ : sum)
    for (int64_t thread = 0; thread < threads; ++thread) {
        const auto *from = static_cast<const Word *>(memory) + thread * (each / WORD_BYTES);
        Ints sums[AT_ONCE] = {};
        for (int64_t at = 0; at < each / WORD_BYTES; at += AT_ONCE * LANES) {
            __builtin_prefetch(from + at + AHEAD);
            __builtin_prefetch(from + at + AHEAD + AT_ONCE * LANES / 2);
            for (int64_t part = 0; part < AT_ONCE; ++part) sums[part] += load_words(from + at + part * LANES);
        }
        for (const Ints &part : sums)
            for (int lane = 0; lane < LANES; ++lane) sum += part[lane];
    }
    return sum;
}

// Lay a matrix [outputs][inputs] out in panels; panel p becomes number first + p · every.
void pipedec_pack(int64_t bfloat16, const void *matrix, int64_t outputs, int64_t inputs, Word *panels, int64_t first,
                  int64_t every, int64_t threads) {
    const auto count = static_cast<int>(threads);
    if (bfloat16) pack<BFloat16>(matrix, outputs, inputs, panels, first, every, count);
    else pack<Float32>(matrix, outputs, inputs, panels, first, every, count);
}

// Keep a source's keys and values, [length][heads · head width] each in float32, for one layer and lane.
void pipedec_remember_source(const Decoder *decoder, const Cache *cache, int64_t layer, int64_t lane, int64_t length,
                             const float *keys, const float *values, int64_t threads) {
    const auto count = static_cast<int>(threads);
    if (decoder->bfloat16) remember_source<BFloat16>(*decoder, *cache, layer, lane, length, keys, values, count);
    else remember_source<Float32>(*decoder, *cache, layer, lane, length, keys, values, count);
}

// Encode sources, whose token ids stand one behind the other in `tokens`, into `states`, [count][padded][width].
// Returns 0, or 1 if there was no memory for its buffers.
int64_t pipedec_encode(const Encoder *encoder, int64_t count, const int64_t *lengths, const int64_t *tokens, int64_t threads,
                       float *states, int64_t padded) {
    try {
        Encoding(*encoder, count, lengths, tokens, static_cast<int>(threads)).run(states, padded);
    } catch (const std::bad_alloc &) {
        return 1;
    }
    return 0;
}

// One decoder call; `answers` gets a token id a row and `logits`, if not null, [rows][vocabulary]. Returns 0, or 1 if there was no memory for its buffers.
int64_t pipedec_step(const Decoder *decoder, const Cache *cache, int64_t count, const Row *rows, int64_t threads,
                     int64_t *answers, float *logits) {
    try {
        const auto team = static_cast<int>(threads);
        if (decoder->bfloat16) Step<BFloat16>(*decoder, *cache, count, rows, team).run(answers, logits);
        else Step<Float32>(*decoder, *cache, count, rows, team).run(answers, logits);
    } catch (const std::bad_alloc &) {
        return 1;
    }
    return 0;
}
}
