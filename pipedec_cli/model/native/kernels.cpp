// The compiled kernels, as Python calls them; `library.py` mirrors what is here.

#include <algorithm>
#include <memory>
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

// What a call may name: nothing is read or written beyond what Python has allocated.

bool within(int64_t value, int64_t end) { return 0 <= value && value < end; }

bool all_within(int64_t count, const int64_t *tokens, int64_t vocabulary) {
    return std::all_of(tokens, tokens + count, [&](int64_t token) { return within(token, vocabulary); });
}

bool all_within(const Model &m, const Cache &cache, int64_t count, const Row *rows) {
    constexpr int64_t LATEST = 1 << 30; // sums of two such numbers are int32_t
    return count > 0 && std::all_of(rows, rows + count, [&](const Row &row) {
        const Row &before = &row == rows ? row : (&row)[-1];
        const bool ordered = before.sequence < row.sequence || before.column < row.column || &row == rows;
        return ordered && before.sequence <= row.sequence && within(row.token, m.vocabulary) &&
               within(row.sequence, cache.sequences) && within(row.column, cache.room) && within(row.time, LATEST) &&
               within(row.subsequence, LATEST) && within(cache.source_length[row.sequence], cache.source_room + 1);
    });
}

template <class F> int64_t attempt(bool sound, F work) {
    if (!sound) return 2;
    try {
        work();
    } catch (const std::bad_alloc &) {
        return 1;
    }
    return 0;
}

} // namespace

extern "C" {

// Outputs side by side in a panel.
int64_t pipedec_panel() { return PANEL; }

// What this was compiled with and for.
const char *pipedec_features() {
#ifdef _OPENMP
    return FEATURES;
#else
    return FEATURES ", one thread";
#endif
}

// Ask for large pages, so that reading on is not held up by looking addresses up. A refusal does no harm.
void pipedec_use_large_pages([[maybe_unused]] void *memory, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#endif
}

// Read memory from front to back with all threads, as a step reads its weights, a whole number of blocks; the sum keeps
// the reading from being left out.
int64_t pipedec_read(const void *memory, int64_t bytes, int64_t threads) {
    constexpr int64_t BLOCK = 1 << 10; // words
    uint32_t sum = 0;
#pragma omp parallel for num_threads(static_cast<int>(threads)) schedule(static) reduction(+ : sum)
    for (int64_t block = 0; block < bytes / (BLOCK * WORD_BYTES); ++block) {
        const Word *from = static_cast<const Word *>(memory) + block * BLOCK;
        Ints sums[4] = {};
        for (int64_t at = 0; at < BLOCK; at += LANES) {
            __builtin_prefetch(from + at + AHEAD);
            sums[at / LANES % 4] += load_words(from + at);
        }
        for (int lane = 0; lane < LANES; ++lane) sum += (sums[0] + sums[1] + sums[2] + sums[3])[lane];
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

// Bytes of each structure as they are laid out here, for Python to compare with its own.
int64_t pipedec_size(int64_t which) {
    constexpr int64_t sizes[] = {sizeof(Layer), sizeof(Model), sizeof(Cache), sizeof(Row)};
    return sizes[which];
}

// The following return 0, or 1 if there was no memory for their buffers, 2 if what they were given is out of bounds.

// Keep a source's keys and values for all layers in a sequence; `states` are the encoder's last, [length][width].
int64_t pipedec_remember_source(const Model *decoder, const Cache *cache, int64_t sequence, int64_t length, const float *states,
                                int64_t threads) {
    const bool sound = within(sequence, cache->sequences) && within(length, cache->source_room + 1);
    return attempt(sound, [&] {
        const auto team = static_cast<int>(threads);
        if (decoder->bfloat16) Block<BFloat16>(*decoder, length, PIECE, team).keep_source(*cache, sequence, states);
        else Block<Float32>(*decoder, length, PIECE, team).keep_source(*cache, sequence, states);
    });
}

// Encode sources, whose token ids stand one behind the other in `tokens`, into `states`, [count][padded][width].
int64_t pipedec_encode(const Model *encoder, int64_t count, const int64_t *lengths, const int64_t *tokens, int64_t threads,
                       float *states, int64_t padded) {
    const auto fits = [&](int64_t length) { return 0 < length && length <= padded; };
    const bool sound = count > 0 && std::all_of(lengths, lengths + count, fits) &&
                       all_within(std::accumulate(lengths, lengths + count, int64_t{0}), tokens, encoder->vocabulary);
    return attempt(sound, [&] {
        Encoding(*encoder, count, lengths, tokens, static_cast<int>(threads)).run(states, padded);
    });
}

// One decoder call; `answers` gets a token id a row, `logits` and `probabilities`, if not null, what `Step::run` says.
int64_t pipedec_step(const Model *decoder, const Cache *cache, int64_t count, const Row *rows, int64_t threads,
                     int64_t *answers, float *logits, float *probabilities) {
    return attempt(all_within(*decoder, *cache, count, rows), [&] {
        const auto team = static_cast<int>(threads);
        std::unique_ptr<float[]> own(logits ? nullptr : new float[count * round_up(decoder->vocabulary, PANEL)]);
        if (!logits) logits = own.get();
        if (decoder->bfloat16) Step<BFloat16>(*decoder, *cache, count, rows, team).run(answers, logits, probabilities);
        else Step<Float32>(*decoder, *cache, count, rows, team).run(answers, logits, probabilities);
    });
}
}
