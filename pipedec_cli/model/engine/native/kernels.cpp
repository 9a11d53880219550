// The functions that Python calls; `library.py` declares them for ctypes.

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "causal.h"
#include "decoder.h"
#include "encoder.h"
#include "rounding.h"

namespace {

// Call pack_one(p) for each panel of a matrix, on all threads.
template <class F> void each_panel(long outputs, int threads, F pack_one) {
    std::atomic<long> next{0};
    on_threads(threads, [&](int) {
        for (long p; (p = next++) < round_up(outputs, PANEL) / PANEL;) pack_one(p);
    });
}

// S: the kind of numbers of the matrix, E: the kind in the panels.
template <class S, class E>
void pack(const void *matrix, long outputs, long inputs, Word *panels, long stride, int threads) {
    each_panel(outputs, threads, [&](long p) {
        Word *panel = panels + p * stride;
        for (long j = 0; j < PANEL; ++j) {
            const long o = p * PANEL + j;
            for (long u = 0; u < units<E>(inputs); ++u) {
                float numbers[E::NUMBERS];
                for (long k = 0; k < E::NUMBERS; ++k) {
                    const long i = u * E::NUMBERS + k;
                    numbers[k] = o < outputs && i < inputs ? S::get(matrix, o * inputs + i) : 0.0f;
                }
                panel[u * PANEL + j] = E::pack(numbers);
            }
        }
    });
}

#ifdef HAS_INT8
// Round a matrix of floats to integers of a kind.
template <class W> void round_matrix(const float *matrix, long outputs, long inputs, Word *panels, long stride, int threads) {
    each_panel(outputs, threads, [&](long p) {
        for (long j = 0; j < PANEL; ++j) {
            const float *row = matrix + (p * PANEL + j) * inputs;
            for (long first = 0; first < groups_of(inputs); first += W::TOGETHER) {
                const long groups = std::min(W::TOGETHER, groups_of(inputs) - first), begin = first * GROUP;
                float numbers[SUPER] = {};
                if (p * PANEL + j < outputs) std::copy(row + begin, row + std::min(inputs, begin + groups * GROUP), numbers);
                Numbers whole;
                round_to<W>(numbers, groups, whole);
                W::write(panels + p * stride, j, first, groups, whole);
            }
        }
    });
}

// Put the blocks of a GGUF file into panels, each number as it is.
template <class W> void place_blocks(long type, const uint8_t *blocks, long outputs, long inputs, Word *panels, long stride, int threads) {
    const BlockSize size = block_size(type);
    const long every = groups_of(inputs) / size.groups;
    each_panel(outputs, threads, [&](long p) {
        for (long j = 0; j < PANEL; ++j)
            for (long b = 0; b < every; ++b) {
                Numbers whole;
                if (p * PANEL + j < outputs) read_block(type, blocks + ((p * PANEL + j) * every + b) * size.bytes, whole);
                W::write(panels + p * stride, j, b * size.groups, size.groups, whole);
            }
    });
}
#endif

// Call work(E{}, K{}) with the kinds of a model's matrices and of its cache; kinds that are not compiled are wide.
template <class F> void as_kinds(const Model &m, F work) {
#ifdef HAS_INT8
    const auto in_groups = [&](auto e) {
#ifdef HAS_PAIRS
        if (m.pairs) return work(e, Pairs{});
#endif
        work(e, BFloat16{});
    };
    if (m.weights >= EIGHT) return in_groups(Integers{});
#endif
#ifdef HAS_PAIRS
    if (m.weights == BFLOAT16 && m.pairs) return work(Pairs{}, Pairs{});
#endif
    if (m.weights == BFLOAT16) return work(BFloat16{}, BFloat16{});
    work(Float32{}, Float32{});
}

// Checks of a call: nothing is read or written outside what Python has allocated.

bool within(int64_t value, int64_t end) { return 0 <= value && value < end; }

bool all_within(int64_t count, const int64_t *tokens, int64_t vocabulary) {
    return std::all_of(tokens, tokens + count, [&](int64_t token) { return within(token, vocabulary); });
}

bool all_within(const Model &m, const Cache &cache, int64_t count, const Row *rows, const int64_t *others) {
    constexpr int64_t FAR = 1 << 29; // differences of such numbers are int32_t
    constexpr int64_t ROWS = int64_t{1} << 31;
    const int64_t *other = others; // of the next row
    return count > 0 && std::all_of(rows, rows + count, [&](const Row &row) {
        if (row.others < 0 || !all_within(row.others, other, m.vocabulary)) return false;
        other += row.others;
        const Row &before = &row == rows ? row : (&row)[-1];
        const bool ordered = before.sequence < row.sequence || before.column < row.column || &row == rows;
        return ordered && before.sequence <= row.sequence && within(row.token, m.vocabulary) &&
               within(row.sequence, cache.sequences) && within(row.column, cache.room) && -FAR < row.time && row.time < FAR &&
               within(row.subsequence, ROWS) && row.end < m.vocabulary && -FAR < row.position && row.position < FAR &&
               (m.causal || within(cache.source_length[row.sequence], cache.source_room + 1));
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

// The instructions that the kernels were compiled for.
const char *pipedec_features() {
    return FEATURES
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
        ", VNNI"
#endif
#ifdef HAS_PAIRS
        ", BF16"
#endif
#ifdef HAS_TILES
        ", AMX"
#endif
#if defined(__aarch64__) && defined(HAS_INT8)
        ", dot products"
#endif
        ;
}

// The kinds of products: 1 for int8, 2 for bfloat16 in pairs, 4 for tile registers if the system allows them, or a sum.
int64_t pipedec_kinds() {
    int64_t kinds = may_use_tiles() ? 4 : 0;
#ifdef HAS_INT8
    kinds += 1;
#endif
#ifdef HAS_PAIRS
    kinds += 2;
#endif
    return kinds;
}

// Ask for large pages, which make the look-up of addresses faster.
void pipedec_use_large_pages(void *memory, int64_t bytes) { use_large_pages(memory, static_cast<size_t>(bytes)); }

// The words of a panel of a kind of weights.
int64_t pipedec_panel_words(int64_t kind, int64_t inputs) { return panel_words(kind, inputs); }

// The kind that holds all numbers of one of ggml's types; −1 for a type that is not read.
int64_t pipedec_kind_of_blocks([[maybe_unused]] int64_t type) {
#ifdef HAS_INT8
    return kind_of_blocks(type);
#else
    return -1;
#endif
}

// The words that a key of so many numbers takes in the cache.
int64_t pipedec_key_words(const Model *kind, int64_t numbers) {
    int64_t words = 0;
    as_kinds(*kind, [&](auto, auto k) { words = units<decltype(k)>(numbers); });
    return words;
}

// Pack a matrix [outputs][inputs] into panels of a kind, `stride` words apart. It is bfloat16 for the kind BFLOAT16, else float32.
void pipedec_pack(const Model *model, int64_t kind, const void *matrix, int64_t outputs, int64_t inputs, Word *panels, int64_t stride,
                  int64_t threads) {
    const int team = static_cast<int>(threads);
#ifdef HAS_INT8
    if (kind >= EIGHT)
        return as_integers(kind, [&](auto w) {
            using W = decltype(w);
            constexpr bool ROUNDS = std::is_same_v<W, Eight> || std::is_same_v<W, SuperFour> || std::is_same_v<W, SuperSix>;
            if constexpr (ROUNDS) round_matrix<W>(static_cast<const float *>(matrix), outputs, inputs, panels, stride, team);
        });
#endif
    as_kinds(*model, [&](auto e, auto) {
        using E = decltype(e);
        using S = std::conditional_t<E::NUMBERS == 2, BFloat16, Float32>;
        if constexpr (!E::GROUPED) pack<S, E>(matrix, outputs, inputs, panels, stride, team);
    });
}

// Put a matrix [outputs][inputs] in blocks of one of ggml's types into panels of the kind that holds them.
void pipedec_place([[maybe_unused]] int64_t type, [[maybe_unused]] const uint8_t *blocks, [[maybe_unused]] int64_t outputs,
                   [[maybe_unused]] int64_t inputs, [[maybe_unused]] Word *panels, [[maybe_unused]] int64_t stride,
                   [[maybe_unused]] int64_t threads) {
#ifdef HAS_INT8
    as_integers(kind_of_blocks(type), [&](auto w) {
        place_blocks<decltype(w)>(type, blocks, outputs, inputs, panels, stride, static_cast<int>(threads));
    });
#endif
}

// out[outputs in whole panels][inputs]: the weights of a packed matrix as they are multiplied.
void pipedec_unpack(const Model *model, int64_t kind, const Word *panels, int64_t stride, int64_t outputs, int64_t inputs, float *out) {
    as_kinds(*model, [&](auto e, auto) {
        for (long o = 0; o < round_up(outputs, PANEL); ++o)
            column<decltype(e)>(kind, panels + o / PANEL * stride, inputs, o % PANEL, out + o * inputs);
    });
}

// out[rows][outputs in whole panels] = x[rows][inputs] · a packed matrix, in one thread.
void pipedec_multiply(const Model *model, int64_t kind, int64_t rows, const float *x, int64_t inputs, const Word *panels, int64_t stride,
                      int64_t outputs, float *out) {
    as_kinds(*model, [&](auto e, auto) {
        using E = decltype(e);
        const long row = round_up(given_words<E>(inputs), LANES) + LANES, out_row = round_up(outputs, PANEL);
        Buffer<typename E::Given> given(rows * row);
        [[maybe_unused]] const TileRegisters registers;
        for (long r = 0; r < rows; ++r) {
            if constexpr (std::is_same_v<typename E::Given, float>) std::copy_n(x + r * inputs, inputs, given.data() + r * row);
            else E::give(x + r * inputs, inputs, units<E>(inputs), given.data() + r * row);
        }
        for (long p = 0; p < out_row / PANEL; ++p)
            matrix_product<E>(model->tiles, given.data(), row, rows, kind, panels + p * stride, inputs, out + p * PANEL, out_row);
    });
}

// The bytes of each structure, for Python to compare with its own.
int64_t pipedec_size(int64_t which) {
    constexpr int64_t sizes[] = {sizeof(Layer), sizeof(Model), sizeof(Cache), sizeof(Row)};
    return sizes[which];
}

// The functions below return 0; or 1 if there is no memory for their buffers, 2 if an argument is out of bounds.

// Keep a source's keys and values for all layers in a sequence. `states` are the encoder's last states, [length][width].
int64_t pipedec_remember_source(const Model *decoder, const Cache *cache, int64_t sequence, int64_t length, const float *states,
                                int64_t threads) {
    const bool sound = within(sequence, cache->sequences) && within(length, cache->source_room + 1);
    return attempt(sound, [&] {
        as_kinds(*decoder, [&](auto e, auto kept) {
            Block<decltype(e), decltype(kept)>(*decoder, length, PIECE, static_cast<int>(threads)).keep_source(*cache, sequence, states);
        });
    });
}

// Encode sources into `states`, [count][padded][width]. Their token ids stand in `tokens`, one source behind the other.
int64_t pipedec_encode(const Model *encoder, int64_t count, const int64_t *lengths, const int64_t *tokens, int64_t threads,
                       float *states, int64_t padded) {
    const auto fits = [&](int64_t length) { return 0 < length && length <= padded; };
    const bool sound = count > 0 && std::all_of(lengths, lengths + count, fits) &&
                       all_within(std::accumulate(lengths, lengths + count, int64_t{0}), tokens, encoder->vocabulary);
    return attempt(sound, [&] {
        as_kinds(*encoder, [&](auto e, auto kept) {
            Encoding<decltype(e), decltype(kept)>(*encoder, count, lengths, tokens, static_cast<int>(threads)).run(states, padded);
        });
    });
}

// One decoder call. `answers` gets a token id for each row that wants an answer. `allowed`, `others`, `logits` and `odds` are
// those of `Answering::answer`; the last two may be null.
int64_t pipedec_step(const Model *decoder, const Cache *cache, int64_t count, const Row *rows, const uint8_t *allowed,
                     const int64_t *others, int64_t threads, int64_t *answers, float *logits, float *odds) {
    return attempt(all_within(*decoder, *cache, count, rows, others), [&] {
        const int64_t wanted = std::count_if(rows, rows + count, [](const Row &row) { return row.choices >= 0; });
        std::unique_ptr<float[]> own(logits ? nullptr : new float[wanted * round_up(decoder->vocabulary, PANEL)]);
        if (!logits) logits = own.get();
        as_kinds(*decoder, [&](auto e, auto kept) {
            using E = decltype(e);
            using K = decltype(kept);
            const int team = static_cast<int>(threads);
            if (decoder->causal) Causal<E, K>(*decoder, *cache, count, rows, team).run(allowed, others, answers, logits, odds);
            else Step<E, K>(*decoder, *cache, count, rows, team).run(allowed, others, answers, logits, odds);
        });
    });
}
}
