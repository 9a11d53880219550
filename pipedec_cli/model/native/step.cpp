// One decoder call of a T5 in one call of C++: from token ids to the most probable next token of each row.
//
// A call with few rows reads every weight once: it is bound by memory. So the weights are packed into panels that are
// read front to back, every panel serves all rows while it is in the cache, and the threads meet eight times a layer.
// With many rows it is bound by arithmetic, for which a tile of rows × one panel is kept in registers.
//
// A row's sums are always taken in the same order, whichever rows stand beside it: its answer does not depend on them.
//
// Words: matrices are stored in 32-bit words, each one float32 or two neighbouring bfloat16 of the summed dimension.
// A panel is [units][PANEL] words: for each word of the input, PANEL outputs side by side. Keys are panels as well
// (outputs are the columns of the grid), and so are values (outputs are the places within a head).

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __AVX512F__
#include <immintrin.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace {

using Word = uint32_t;
constexpr int64_t WORD_BYTES = sizeof(Word);

// LANES floats make a vector; TILE_ROWS rows of two vectors fit into the registers.
#if defined(__AVX512F__)
constexpr int LANES = 16, TILE_ROWS = 12;
#elif defined(__AVX2__)
constexpr int LANES = 8, TILE_ROWS = 6;
#elif defined(__aarch64__)
constexpr int LANES = 4, TILE_ROWS = 12;
#else
constexpr int LANES = 4, TILE_ROWS = 6;
#endif
constexpr long PANEL = 2 * LANES;
constexpr long CHUNK = 96;         // words of the summed dimension that stay in the first cache for all rows
constexpr long AHEAD = 40 * PANEL; // how far ahead of the sums weights are asked for, in words
constexpr float INF = std::numeric_limits<float>::infinity();

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef float LooseFloats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t LooseInts __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Floats load(const float *p) { return *reinterpret_cast<const LooseFloats *>(p); }
inline void store(float *p, Floats v) { *reinterpret_cast<LooseFloats *>(p) = v; }
inline Ints load_words(const Word *p) { return *reinterpret_cast<const LooseInts *>(p); }
inline Floats all(float x) { return x - Floats{}; }
inline Ints all_words(Word x) { return static_cast<int32_t>(x) - Ints{}; }
inline Floats as_floats(Ints x) { return reinterpret_cast<Floats>(x); }
inline long round_up(long n, long to) { return (n + to - 1) / to * to; }

inline float from_bits(Word bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
inline Word to_bits(float x) {
    Word bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

// How numbers stand in words, and what a word of weights and one of a row add to a sum.
struct Float32 {
    static constexpr long NUMBERS = 1;
    static float get(const void *p, long i) { return static_cast<const float *>(p)[i]; }
    static Word pack(float first, float) { return to_bits(first); }
    static Floats add(Floats sum, const Word *weights, Word x) {
#ifdef __AVX512F__
        return (Floats)_mm512_fmadd_ps(_mm512_loadu_ps(weights), _mm512_set1_ps(from_bits(x)), (__m512)sum);
#else
        return sum + as_floats(load_words(weights)) * all(from_bits(x));
#endif
    }
};

struct BFloat16 {
    static constexpr long NUMBERS = 2;
    static float get(const void *p, long i) {
        return from_bits(static_cast<Word>(static_cast<const uint16_t *>(p)[i]) << 16);
    }
    static Word round(float x) { // to the nearest, ties to even
        const Word bits = to_bits(x);
        return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    }
    static Word pack(float first, float second) { return round(first) | round(second) << 16; }
    static Floats add(Floats sum, const Word *weights, Word x) {
#ifdef __AVX512BF16__
        return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_loadu_si512(weights),
                                        (__m512bh)_mm512_set1_epi32(static_cast<int>(x)));
#else
        const Ints w = load_words(weights), high = all_words(0xffff0000u);
        sum = sum + as_floats(w << 16) * all(from_bits(x << 16));
        return sum + as_floats(w & high) * all(from_bits(x & 0xffff0000u));
#endif
    }
};

template <class E> void pack_row(const float *x, long n, Word *words) {
    for (long u = 0; u < n / E::NUMBERS; ++u) words[u] = E::pack(x[u * E::NUMBERS], x[u * E::NUMBERS + E::NUMBERS - 1]);
    if (n % E::NUMBERS) words[n / E::NUMBERS] = E::pack(x[n - 1], 0.0f);
}

// ---- products of rows and panels ------------------------------------------------------------------------------------

// out[R][PANEL] (+)= x[R][units] · panel[units][PANEL]; neighbouring words of the sum lie `stride` words apart.
template <class E, int R>
void tile(const Word *x, long x_row, const Word *panel, long stride, long units, float *out, long out_row, bool more) {
    Floats left[R], right[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        left[r] = more ? load(out + r * out_row) : Floats{};
        right[r] = more ? load(out + r * out_row + LANES) : Floats{};
    }
    for (long u = 0; u < units; ++u, panel += stride) {
        __builtin_prefetch(panel + AHEAD);
        if (PANEL * 4 > 64) __builtin_prefetch(panel + AHEAD + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const Word word = x[r * x_row + u];
            left[r] = E::add(left[r], panel, word);
            right[r] = E::add(right[r], panel + LANES, word);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        store(out + r * out_row, left[r]);
        store(out + r * out_row + LANES, right[r]);
    }
}

using Tile = void (*)(const Word *, long, const Word *, long, long, float *, long, bool);

template <class E> Tile tile_of(long rows) {
    static constexpr Tile tiles[] = {
        tile<E, 1>, tile<E, 2>, tile<E, 3>, tile<E, 4>, tile<E, 5>, tile<E, 6>,
#if defined(__AVX512F__) || (defined(__aarch64__) && !defined(__AVX2__))
        tile<E, 7>, tile<E, 8>, tile<E, 9>, tile<E, 10>, tile<E, 11>, tile<E, 12>,
#endif
    };
    static_assert(sizeof(tiles) / sizeof(Tile) == TILE_ROWS, "a tile for every number of rows");
    return tiles[rows - 1];
}

// The same for any number of rows. A chunk of the panel serves all of them before the next chunk is read.
template <class E>
void product(const Word *x, long x_row, long rows, const Word *panel, long stride, long units, float *out, long out_row) {
    const long blocks = (rows + TILE_ROWS - 1) / TILE_ROWS;
    const long chunk = rows <= 4 ? units : CHUNK;
    for (long from = 0; from < units; from += chunk) {
        const long count = std::min(chunk, units - from);
        for (long block = 0, row = 0; block < blocks; ++block) {
            const long height = rows / blocks + (block < rows % blocks);
            tile_of<E>(height)(x + row * x_row + from, x_row, panel + from * stride, stride, count, out + row * out_row,
                               out_row, from > 0);
            row += height;
        }
    }
}

// ---- element by element ---------------------------------------------------------------------------------------------

// e^x for x ≤ 0, to about two units in the last place; 0 below the smallest normal number, -∞ included.
inline Floats exponential(Floats x) {
    const Ints tiny = x < all(-87.0f);
    const Floats magic = all(12582912.0f); // 1.5 · 2^23: adding it rounds to an integer in the low bits
    const Floats shifted = x * all(1.44269504f) + magic;
    const Floats n = shifted - magic;
    Floats r = x - n * all(0.693359375f); // ln 2 in two parts
    r = r + n * all(2.12194440e-4f);
    Floats p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f);
    p = p * r + all(8.3334519073e-3f);
    p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f);
    p = p * r + all(5.0000001201e-1f);
    p = p * r * r + r + all(1.0f);
    const Ints scale = (reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(magic)) << 23;
    return as_floats((reinterpret_cast<Ints>(p) + scale) & ~tiny);
}

inline Floats relu(Floats x) { return as_floats(reinterpret_cast<Ints>(x) & (x > Floats{})); }

// T5 v1.1's GELU: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), with tanh u = ±(1 − e^−2|u|) / (1 + e^−2|u|).
inline Floats gelu(Floats x) {
    const Floats u = all(0.79788456f) * (x + all(0.044715f) * x * x * x);
    const Ints sign = reinterpret_cast<Ints>(u) & all_words(0x80000000u);
    const Floats size = as_floats(reinterpret_cast<Ints>(u) ^ sign);
    const Floats e = exponential(all(-2.0f) * size);
    const Floats tanh = as_floats(reinterpret_cast<Ints>((all(1.0f) - e) / (all(1.0f) + e)) ^ sign);
    return all(0.5f) * x * (all(1.0f) + tanh);
}

inline float sum_of(Floats v) {
    float sum = 0;
    for (int i = 0; i < LANES; ++i) sum += v[i];
    return sum;
}

// Scores to e^(score − largest), in place; returns their sum. `padded` is a multiple of PANEL.
float exponentials(float *scores, long padded) {
    Floats most = all(-INF);
    for (long i = 0; i < padded; i += LANES) {
        const Floats row = load(scores + i);
        const Ints larger = row > most;
        most = as_floats((reinterpret_cast<Ints>(row) & larger) | (reinterpret_cast<Ints>(most) & ~larger));
    }
    float largest = most[0];
    for (int i = 1; i < LANES; ++i) largest = std::max(largest, most[i]);
    Floats sums = {};
    for (long i = 0; i < padded; i += LANES) {
        const Floats e = exponential(load(scores + i) - all(largest));
        store(scores + i, e);
        sums = sums + e;
    }
    return sum_of(sums);
}

} // namespace

// ---- what Python hands over (mirrored in library.py) -------------------------------------------------------------

extern "C" {

struct Layer {
    const float *self_norm, *cross_norm, *feed_norm;
    const float *bias; // [heads][hidden + 1]: by distance up to hidden − 1; column `hidden` is −∞
    const Word *qkv, *self_out, *cross_q, *cross_out, *feed_in, *feed_out; // panels
};

struct Decoder {
    int64_t layers, heads, head_width, width, feed_width, vocabulary, hidden;
    int64_t bfloat16, gated, gelu; // flags
    double epsilon, scale;
    const void *embedding; // [vocabulary][width] in the weights' own dtype
    const float *final_norm;
    const Word *head;
    const Layer *layer;
};

struct Cache {
    int64_t lanes, room, source_room; // columns; multiples of PANEL
    Word *keys, *values;              // [layers][lanes][heads][room / PANEL panels], [room / NUMBERS][padded width]
    Word *source_keys, *source_values;
    int32_t *subsequence, *time; // [lanes][room]
    const int64_t *source_length; // [lanes]
};

// One row of a call; rows are ordered by lane, and within a lane by column.
struct Row {
    int64_t token, lane, column, subsequence, time;
};
}

namespace {

struct Span { // the rows of one lane
    long first, count, lane, length;
};

// Buffers of one thread.
struct Scratch {
    std::vector<Word> x, q, weights;
    std::vector<float> sums, scores;
    std::vector<float> best_value;
    std::vector<int64_t> best;
};

// The threads of a call. They take pieces of work as they get to them, so that one which is held up by another program
// holds up nobody else; and who waits long gives way, since on a busy machine the others may need its core to arrive.
class Team {
  public:
    explicit Team(int threads) : threads(threads) {}

    // Do work(0) … work(count − 1) among all threads, each of which calls this; wait until all of it is done.
    template <class F> void share(long count, F work) {
        const int now = phase.load(std::memory_order_relaxed);
        for (long i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(i);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived.store(0, std::memory_order_relaxed);
            next.store(0, std::memory_order_relaxed);
            phase.store(now + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; phase.load(std::memory_order_acquire) == now; ++spins) {
            if (spins > PATIENCE) std::this_thread::yield();
            else pause();
        }
    }

    int threads; // as many as came

  private:
    static constexpr int PATIENCE = 1000;
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }

    alignas(64) std::atomic<long> next{0};
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<int> phase{0};
};

template <class E> class Step {
  public:
    Step(const Decoder &decoder, const Cache &cache, long count, const Row *rows, int threads)
        : m(decoder), cache(cache), n(count), rows(rows), team(threads), inner(m.heads * m.head_width),
          head_units(m.head_width / E::NUMBERS), head_room(round_up(m.head_width, PANEL)),
          h_row(round_up(m.width, PANEL) + LANES), qkv_row(round_up(3 * inner, PANEL) + LANES),
          x_row(units(m.width) + LANES), attended_row(units(inner) + LANES), fed_row(units(round_up(m.feed_width, PANEL)) + LANES) {
        for (long r = 0; r < n; ++r) {
            if (r == 0 || rows[r].lane != rows[r - 1].lane) spans.push_back({r, 0, rows[r].lane, 0});
            ++spans.back().count;
            spans.back().length = rows[r].column + 1;
            longest = std::max<long>(longest, spans.back().length);
            longest_source = std::max<long>(longest_source, cache.source_length[rows[r].lane]);
            most = std::max(most, spans.back().count);
        }
        longest = round_up(longest, PANEL);
        longest_source = round_up(longest_source, PANEL);
        h.resize(n * h_row);
        qkv.resize(n * qkv_row);
        attended.resize(n * attended_row);
        fed.resize(n * fed_row);
        pairs.resize(n * longest);
        score_row = std::max(longest, longest_source) + LANES;
        scratch.resize(threads);
        for (auto &s : scratch) {
            s.x.resize(n * x_row);
            s.sums.resize(std::max(n * 2 * PANEL, most * head_room));
            s.q.resize(most * head_units);
            s.scores.resize(most * score_row);
            s.weights.resize(most * score_row);
            s.best.resize(n);
            s.best_value.assign(n, -INF);
        }
    }

    void run(int64_t *answers, float *logits) {
        place_rows();
#pragma omp parallel num_threads(team.threads)
        {
#ifdef _OPENMP
#pragma omp single
            team.threads = omp_get_num_threads(); // may be fewer than were asked for
            Scratch &s = scratch[omp_get_thread_num()];
#else
            team.threads = 1;
            Scratch &s = scratch[0];
#endif
            for (long l = 0; l < m.layers; ++l) {
                const Layer &layer = m.layer[l];
                normalise(s, layer.self_norm, 1.0f);
                project(s, layer.qkv, 3 * inner);
                attend_all(s, l, layer.bias);
                add_product(s, attended, attended_row, layer.self_out, units(inner));
                normalise(s, layer.cross_norm, 1.0f);
                project(s, layer.cross_q, inner);
                attend_all(s, l, nullptr);
                add_product(s, attended, attended_row, layer.cross_out, units(inner));
                normalise(s, layer.feed_norm, 1.0f);
                feed_inward(s, layer.feed_in);
                add_product(s, fed, fed_row, layer.feed_out, units(m.feed_width));
            }
            normalise(s, m.final_norm, static_cast<float>(m.scale));
            find_best(s, logits);
        }
        for (long r = 0; r < n; ++r) {
            float value = -INF;
            answers[r] = 0;
            for (const auto &s : scratch) // threads in any order: the lowest id wins among equals
                if (s.best_value[r] > value || (s.best_value[r] == value && s.best[r] < answers[r])) {
                    value = s.best_value[r];
                    answers[r] = s.best[r];
                }
        }
    }

  private:
    static long units(long numbers) { return (numbers + E::NUMBERS - 1) / E::NUMBERS; }

    // Embed the tokens, write down where they stand, and look up who sees whom at what distance.
    void place_rows() {
        for (long r = 0; r < n; ++r) {
            const long place = rows[r].lane * cache.room + rows[r].column;
            cache.subsequence[place] = static_cast<int32_t>(rows[r].subsequence);
            cache.time[place] = static_cast<int32_t>(rows[r].time);
            for (long i = 0; i < m.width; ++i) h[r * h_row + i] = E::get(m.embedding, rows[r].token * m.width + i);
        }
        const int32_t hidden = static_cast<int32_t>(m.hidden);
        for (const Span &span : spans)
            for (long r = span.first; r < span.first + span.count; ++r) {
                const int32_t *subsequence = cache.subsequence + span.lane * cache.room;
                const int32_t *time = cache.time + span.lane * cache.room;
                const auto i = static_cast<int32_t>(rows[r].subsequence), t = static_cast<int32_t>(rows[r].time);
                int32_t *pair = pairs.data() + r * longest;
                for (long c = 0; c < span.length; ++c) {
                    const bool sees = subsequence[c] <= i && time[c] <= t;
                    pair[c] = sees ? std::min(i + t - subsequence[c] - time[c], hidden - 1) : hidden;
                }
                std::fill(pair + span.length, pair + longest, hidden);
            }
    }

    // T5's norm of every row, packed: each thread does it for itself, which is less work than waiting.
    void normalise(Scratch &s, const float *weight, float scale) {
        float *normed = s.sums.data();
        for (long r = 0; r < n; ++r) {
            const float *row = h.data() + r * h_row;
            Floats squares = {};
            long i = 0;
            for (; i + LANES <= m.width; i += LANES) squares = squares + load(row + i) * load(row + i);
            float sum = sum_of(squares);
            for (; i < m.width; ++i) sum += row[i] * row[i];
            const float factor = 1.0f / std::sqrt(sum / m.width + static_cast<float>(m.epsilon));
            Word *x = s.x.data() + r * x_row;
            for (long from = 0; from < m.width; from += PANEL) {
                const long count = std::min(PANEL, m.width - from);
                for (long j = 0; j < count; ++j) normed[j] = row[from + j] * factor * weight[from + j] * scale;
                pack_row<E>(normed, count, x + from / E::NUMBERS);
            }
        }
    }

    // qkv[rows][outputs] = x · matrix
    void project(Scratch &s, const Word *matrix, long outputs) {
        const long size = units(m.width) * PANEL;
        team.share(round_up(outputs, PANEL) / PANEL, [&](long p) {
            product<E>(s.x.data(), x_row, n, matrix + p * size, PANEL, units(m.width), qkv.data() + p * PANEL, qkv_row);
        });
    }

    // h += x · matrix
    void add_product(Scratch &s, const std::vector<Word> &x, long row, const Word *matrix, long inputs) {
        team.share(round_up(m.width, PANEL) / PANEL, [&](long p) {
            float *sums = s.sums.data();
            product<E>(x.data(), row, n, matrix + p * inputs * PANEL, PANEL, inputs, sums, PANEL);
            for (long r = 0; r < n; ++r)
                for (long j = 0; j < PANEL; ++j) h[r * h_row + p * PANEL + j] += sums[r * PANEL + j];
        });
    }

    // fed = act(x · wi), or act(x · wi_0) · (x · wi_1) where it is gated: their panels take turns.
    void feed_inward(Scratch &s, const Word *matrix) {
        const long size = units(m.width) * PANEL, width = m.gated ? 2 * PANEL : PANEL;
        team.share(round_up(m.feed_width, PANEL) / PANEL, [&](long p) {
            float *sums = s.sums.data();
            for (long part = 0; part <= m.gated; ++part)
                product<E>(s.x.data(), x_row, n, matrix + (m.gated ? 2 * p + part : p) * size, PANEL, units(m.width),
                           sums + part * PANEL, width);
            for (long r = 0; r < n; ++r) {
                for (long j = 0; j < PANEL; j += LANES) {
                    float *at = sums + r * width + j;
                    const Floats value = m.gelu ? gelu(load(at)) : relu(load(at));
                    store(at, m.gated ? value * load(at + PANEL) : value);
                }
                pack_row<E>(sums + r * width, PANEL, fed.data() + r * fed_row + p * PANEL / E::NUMBERS);
            }
        });
    }

    // Attention of every lane's rows over its grid (with a bias) or over its source (without), head by head.
    void attend_all(Scratch &s, long layer, const float *bias) {
        team.share(static_cast<long>(spans.size()) * m.heads, [&](long i) {
            const Span &span = spans[i / m.heads];
            const long head = i % m.heads, room = bias ? cache.room : cache.source_room;
            const long place = (layer * cache.lanes + span.lane) * m.heads + head;
            Word *keys = (bias ? cache.keys : cache.source_keys) + place * room * head_units;
            Word *values = (bias ? cache.values : cache.source_values) + place * (room / E::NUMBERS) * head_room;
            const float *query = qkv.data() + span.first * qkv_row + head * m.head_width;
            if (bias)
                for (long r = 0; r < span.count; ++r)
                    remember(m, keys, values, rows[span.first + r].column, query + r * qkv_row + inner,
                             query + r * qkv_row + 2 * inner);
            attend(s, span, head, bias ? span.length : cache.source_length[span.lane], keys, values, query,
                   bias ? bias + head * (m.hidden + 1) : nullptr);
        });
    }

    void attend(Scratch &s, const Span &span, long head, long length, const Word *keys, const Word *values,
                const float *query, const float *bias) {
        const long padded = round_up(length, PANEL);
        float *scores = s.scores.data(), *sums = s.sums.data();
        for (long r = 0; r < span.count; ++r) pack_row<E>(query + r * qkv_row, m.head_width, s.q.data() + r * head_units);
        for (long c = 0; c < padded; c += PANEL)
            product<E>(s.q.data(), head_units, span.count, keys + c * head_units, PANEL, head_units, scores + c, score_row);
        for (long r = 0; r < span.count; ++r) {
            float *row = scores + r * score_row;
            const int32_t *pair = pairs.data() + (span.first + r) * longest;
            if (bias)
                for (long c = 0; c < padded; ++c) row[c] = bias[pair[c]] == -INF ? -INF : row[c] + bias[pair[c]];
            else
                std::fill(row + length, row + padded, -INF);
            totals(s, r) = exponentials(row, padded);
            pack_row<E>(row, length, s.weights.data() + r * score_row);
        }
        for (long j = 0; j < head_room; j += PANEL)
            product<E>(s.weights.data(), score_row, span.count, values + j, head_room, units(length), sums + j, head_room);
        for (long r = 0; r < span.count; ++r) {
            const float factor = 1.0f / totals(s, r);
            for (long j = 0; j < m.head_width; ++j) sums[r * head_room + j] *= factor;
            pack_row<E>(sums + r * head_room, m.head_width,
                        attended.data() + (span.first + r) * attended_row + head * head_units);
        }
    }

    // The sum of a row's softmax weights stands behind its scores.
    float &totals(Scratch &s, long r) { return s.scores[r * score_row + score_row - 1]; }

    void find_best(Scratch &s, float *logits) {
        const long size = units(m.width) * PANEL;
        team.share(round_up(m.vocabulary, PANEL) / PANEL, [&](long p) {
            float *sums = s.sums.data();
            product<E>(s.x.data(), x_row, n, m.head + p * size, PANEL, units(m.width), sums, PANEL);
            const long count = std::min(PANEL, m.vocabulary - p * PANEL);
            for (long r = 0; logits && r < n; ++r)
                std::copy_n(sums + r * PANEL, count, logits + r * m.vocabulary + p * PANEL);
            for (long r = 0; r < n; ++r)
                for (long j = 0; j < count; ++j)
                    if (sums[r * PANEL + j] > s.best_value[r]) {
                        s.best_value[r] = sums[r * PANEL + j];
                        s.best[r] = p * PANEL + j;
                    }
        });
    }

  public:
    // Put one token's key and value into its column of a head.
    static void remember(const Decoder &m, Word *keys, Word *values, long column, const float *key, const float *value) {
        const long count = m.head_width / E::NUMBERS, room = round_up(m.head_width, PANEL);
        Word *panel = keys + column / PANEL * PANEL * count + column % PANEL;
        for (long u = 0; u < count; ++u)
            panel[u * PANEL] = E::pack(key[u * E::NUMBERS], key[u * E::NUMBERS + E::NUMBERS - 1]);
        Word *row = values + column / E::NUMBERS * room;
        for (long j = 0; j < m.head_width; ++j) {
            if constexpr (E::NUMBERS == 1) {
                row[j] = to_bits(value[j]);
            } else { // neighbouring columns share a word
                const int shift = column % 2 * 16;
                row[j] = (row[j] & ~(0xffffu << shift)) | BFloat16::round(value[j]) << shift;
            }
        }
    }

  private:
    const Decoder &m;
    const Cache &cache;
    const long n;
    const Row *rows;
    Team team;
    const long inner, head_units, head_room;
    // Words from one row to the next; not multiples of 4 KB, which would put all rows into the same places of a cache.
    const long h_row, qkv_row, x_row, attended_row, fed_row;
    long longest = 0, longest_source = 0, most = 0, score_row = 0;
    std::vector<Span> spans;
    std::vector<float> h, qkv;
    std::vector<Word> attended, fed;
    std::vector<int32_t> pairs;
    std::vector<Scratch> scratch;
};

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

template <class E>
void remember_source(const Decoder &m, const Cache &cache, long layer, long lane, long length, const void *keys_in,
                     const void *values_in, int threads) {
    const long units = m.head_width / E::NUMBERS, head_room = round_up(m.head_width, PANEL), inner = m.heads * m.head_width;
#pragma omp parallel for num_threads(threads)
    for (long head = 0; head < m.heads; ++head) {
        const long place = (layer * cache.lanes + lane) * m.heads + head;
        Word *keys = cache.source_keys + place * cache.source_room * units;
        Word *values = cache.source_values + place * (cache.source_room / E::NUMBERS) * head_room;
        std::vector<float> key(m.head_width), value(m.head_width);
        for (long c = 0; c < length; ++c) {
            for (long j = 0; j < m.head_width; ++j) {
                key[j] = E::get(keys_in, c * inner + head * m.head_width + j);
                value[j] = E::get(values_in, c * inner + head * m.head_width + j);
            }
            Step<E>::remember(m, keys, values, c, key.data(), value.data());
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
#if defined(__AVX512BF16__)
        " with bfloat16"
#endif
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

// Keep a source's keys and values, [length][heads · head width] each, for one layer and lane.
void pipedec_remember_source(const Decoder *decoder, const Cache *cache, int64_t layer, int64_t lane, int64_t length,
                             const void *keys, const void *values, int64_t threads) {
    const auto count = static_cast<int>(threads);
    if (decoder->bfloat16) remember_source<BFloat16>(*decoder, *cache, layer, lane, length, keys, values, count);
    else remember_source<Float32>(*decoder, *cache, layer, lane, length, keys, values, count);
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
