#pragma once

// What encoders and decoders have in common: a model's sizes and weights, and the parts of a layer over a number of rows.
//
// A row's sums are always taken in the same order, whichever rows stand beside it and however many threads there are:
// what is computed for it does not depend on them.

#include <numeric>

#include "team.h"

extern "C" { // what Python hands over, mirrored in library.py

struct Layer { // an encoder's and a decoder-only model's have no cross_… parts
    const float *self_norm, *cross_norm, *feed_norm;
    const float *bias; // decoder: [heads][reach + 1], by distance up to reach − 1; column `reach` is −∞
                       // encoder: [heads][2 · reach + 1], by place of the key − place of the query
    const Word *qkv, *self_out, *cross_q, *cross_kv, *cross_out, *feed_in, *feed_out; // panels
    // Of decoder-only models alone; null where there is none:
    const float *self_post, *feed_post; // norms of what a part adds
    const float *query_norm, *key_norm; // of each head, [head_width]
    int64_t rotary;                     // by which frequencies a head is turned; −1: by none
    int64_t windowed;                   // flag: only what is nearer than the model's window is seen
};

struct Model {
    int64_t layers, heads, key_heads, head_width, width, feed_width, vocabulary, reach;
    int64_t weights, activation; // as `Weights` and `Activation` have them
    int64_t pairs, tiles, gated; // flags: bfloat16 multiplied in pairs; tile registers in use
    int64_t causal;              // flag: a decoder-only model, whose prompt is row 0 of the grid
    int64_t window, rotaries;    // positions that a windowed layer sees; how many kinds of frequencies there are
    double epsilon, scale;
    double embedding_scale, query_scale, cap; // cap: of logits, to ±cap; 0: none
    const void *embedding; // [vocabulary][width] in the weights' dtype; bfloat16 beside int8; null: the head's columns
    const float *final_norm;
    const float *frequencies, *amplitudes; // radians a position, [rotaries][head_width / 2]; of cosine and sine, [rotaries]
    const Word *head; // the decoder's, which an encoder may look up as well
    const Layer *layer;
};

struct Cache {
    int64_t sequences, room, source_room; // columns; multiples of PANEL
    Word *keys, *values; // [layers][sequences][key heads][room / PANEL panels], [room / NUMBERS][padded width]
    Word *source_keys, *source_values;
    int32_t *subsequence, *time, *position; // [sequences][room]
    const int64_t *source_length;           // [sequences]
};

// One row of a call; rows are ordered by sequence, and within a sequence by column.
struct Row {
    int64_t token, sequence, column, subsequence, time;
    int64_t choices;  // of how many tokens the answer is one; 0: of all, −1: no answer is wanted
    int64_t position; // of decoder-only models alone
};
}

namespace {

enum Weights { FLOAT32, BFLOAT16, INT8 };
enum Activation { RELU, GELU, SILU };

// Rows as products take them.
struct Prepared {
    Buffer<float> x;
    Buffer<Word> words;
    std::vector<float> scales;
};

// Buffers of one thread.
struct Scratch {
    Prepared own;
    Buffer<float> line, sums, more, scores;
    Buffer<Word> words;
};

// One head's cache: keys are panels with a token to each column, values rows of whole panels.
struct Head {
    Word *keys, *values;
};

// Matrices are of the kind E, and what is cached of the kind K.
template <class E, class K = E> class Block {
  public:
    // `piece`: the most rows that a panel is multiplied with in one piece of work.
    Block(const Model &model, long rows, long piece, int threads)
        : m(model), team(threads), n(rows), pieces((rows + piece - 1) / piece), few(rows <= FEW), inner(m.heads * m.head_width), inner_kv(m.key_heads * m.head_width),
          head_units(units<K>(m.head_width)), head_room(round_up(m.head_width, PANEL)), x_row(round_up(m.width, PANEL) + LANES),
          qkv_row(round_up(inner + 2 * inner_kv, PANEL) + LANES), attended_row(inner + LANES), fed_row(round_up(m.feed_width, PANEL) + LANES),
          words_row(round_up(units<E>(std::max({m.width, inner, m.feed_width})), LANES) + LANES), h(n * x_row), scratch(threads) {
        for (auto &s : scratch) {
            if (few) reserve(s.own);
            s.line.resize(x_row);
        }
        if (!few) reserve(common);
    }

    // Keep the keys and values of a source for every layer; the rows are the encoder's last states, [length][width].
    void keep_source(const Cache &cache, long sequence, const float *states) {
        qkv.resize(n * qkv_row);
        for (long r = 0; r < n; ++r) std::copy_n(states + r * m.width, m.width, h.data() + r * x_row);
        team.run([&](int thread) {
            const Rows states = given(scratch[thread], h, n, x_row, m.width);
            for (long l = 0; l < m.layers; ++l) {
                project(states, m.layer[l].cross_kv, 2 * inner);
                team.share(m.heads, [&](long head) {
                    const long place = (l * cache.sequences + sequence) * m.heads + head;
                    const Head mine = head_at(cache.source_keys, cache.source_values, place, cache.source_room);
                    for (long c = 0; c < n; ++c) keep(mine, c, c, head, 0);
                });
            }
        });
    }

  protected:
    using Given = typename E::Given;
    struct Rows { // what a matrix is multiplied with, and the scale of each row
        const Given *x;
        long count, row;
        const float *scales;
    };
    static constexpr bool AS_THEY_ARE = std::is_same_v<Given, float>;
    static constexpr bool IN_WORDS = !std::is_same_v<typename K::Given, float>; // what the cache is multiplied with
    static constexpr long FEW = 16; // rows that each thread prepares for itself, which is less work than waiting

    void reserve(Prepared &to) const {
        to.x.resize(AS_THEY_ARE ? n * x_row : 0);
        to.words.resize(AS_THEY_ARE ? 0 : n * words_row);
        to.scales.resize(n);
    }

    long halves_row() const { return round_up(m.feed_width, PANEL) + 2 * LANES; }

    // Room for attention of up to `queries` rows at once over up to `longest` columns, and for the layers' products.
    void make_room(long queries, long longest) {
        attended.resize(n * attended_row);
        if (m.layer->self_post) made.resize(n * x_row);
        if (AS_THEY_ARE) fed.resize(n * fed_row);
        else halves.resize(n * halves_row());
        score_row = round_up(longest, PANEL) + LANES;
        seen_row = std::max(round_up(score_row / K::NUMBERS, LANES), head_units);
        for (auto &s : scratch) {
            s.sums.resize(std::max((n + pieces - 1) / pieces * PANEL, queries * head_room));
            s.more.resize((n + pieces - 1) / pieces * PANEL);
            s.scores.resize(queries * score_row);
            s.words.resize(queries * seen_row + LANES);
        }
    }

    // h[row] = the token's embedding: where that is the output matrix, its column there, in the matrix's own numbers.
    void embed(long row, int64_t token) {
        const auto scale = static_cast<float>(m.embedding_scale);
        float *to = h.data() + row * x_row;
        if (m.embedding) {
            const long first = token * m.width;
            for (long i = 0; i < m.width; ++i) to[i] = scale * (m.weights == FLOAT32 ? Float32::get(m.embedding, first + i) : BFloat16::get(m.embedding, first + i));
            return;
        }
        const Word *column = m.head + token / PANEL * panel_words<E>(m.width) + token % PANEL, *words = column + E::HEADER * PANEL;
        const float factor = E::HEADER ? scale * bits_as<float>(*column) : scale;
        for (long i = 0; i < m.width; ++i) to[i] = factor * E::get(words + i / E::NUMBERS * PANEL, i % E::NUMBERS);
    }

    // 1 / sqrt(mean of squares + epsilon)
    float normalising(const float *from, long width) const {
        Floats squares = {};
        long i = 0;
        for (; i + LANES <= width; i += LANES) squares = squares + load(from + i) * load(from + i);
        float sum = sum_of(squares);
        for (; i < width; ++i) sum += from[i] * from[i];
        return 1.0f / std::sqrt(sum / width + static_cast<float>(m.epsilon));
    }

    // x = h / sqrt(mean of squares + epsilon) · weight · scale
    void normalise(long row, const float *weight, float scale, float *x) const {
        const float *from = h.data() + row * x_row;
        const float factor = normalising(from, m.width);
        for (long j = 0; j < m.width; ++j) x[j] = from[j] * factor * weight[j] * scale;
    }

    // work(r) for so many rows.
    template <class F> void each_row(long count, F work) {
        constexpr long TOGETHER = 16;
        if (few)
            for (long r = 0; r < count; ++r) work(r);
        else
            team.share((count + TOGETHER - 1) / TOGETHER, [&](long i) {
                for (long r = i * TOGETHER; r < std::min(count, (i + 1) * TOGETHER); ++r) work(r);
            });
    }

    // The norm of the first rows, as the next matrix takes it.
    Rows normalised(Scratch &s, long count, const float *weight, float scale = 1.0f) {
        Prepared &to = few ? s.own : common;
        each_row(count, [&](long r) {
            if constexpr (AS_THEY_ARE) normalise(r, weight, scale, to.x.data() + r * x_row);
            else {
                normalise(r, weight, scale, s.line.data());
                prepare(to, r, s.line.data(), m.width);
            }
        });
        if constexpr (AS_THEY_ARE) return {to.x.data(), count, x_row, nullptr};
        else return {to.words.data(), count, words_row, to.scales.data()};
    }

    // The first rows of y, likewise.
    template <class N> Rows given(Scratch &s, const Buffer<N> &y, long count, long y_row, long width) {
        if constexpr (std::is_same_v<N, Given>) return {y.data(), count, y_row, nullptr};
        else if constexpr (sizeof(N) < sizeof(float) && E::NUMBERS == 2) { // halves as they are
            return {reinterpret_cast<const Word *>(y.data()), count, y_row / 2, nullptr};
        } else {
            Prepared &to = few ? s.own : common;
            each_row(count, [&](long r) { prepare(to, r, y.data() + r * y_row, width); });
            return {to.words.data(), count, words_row, to.scales.data()};
        }
    }

    template <class N> void prepare(Prepared &to, long r, const N *x, long width) const {
        to.scales[r] = E::give(x, width, units<E>(width), to.words.data() + r * words_row);
    }

    // work(first row, rows, panel) for every panel and every piece of rows; a panel serves all pieces while it is near, and
    // where it is small, a few rows are finished at a time.
    template <class F> void panels(long outputs, const Rows &x, F work) {
        team.share(round_up(outputs, PANEL) / PANEL * pieces, [&](long i) {
            const long piece = i % pieces, end = (piece + 1) * x.count / pieces, together = AS_THEY_ARE ? n : BLOCK;
            for (long first = piece * x.count / pieces; first < end; first += together) work(first, std::min(together, end - first), i / pieces);
        });
    }

    // out[rows][PANEL] = rows · one panel of a matrix
    void multiply(const Rows &x, long first, long rows, const Word *matrix, long panel, long inputs, float *out, long out_row) const {
        matrix_product<E>(m.tiles, x.x + first * x.row, x.row, x.scales + first, rows, matrix + panel * panel_words<E>(inputs), inputs,
                          out, out_row);
    }

    // qkv[rows][outputs] = x · matrix
    void project(const Rows &x, const Word *matrix, long outputs) {
        panels(outputs, x, [&](long first, long count, long p) {
            multiply(x, first, count, matrix, p, m.width, qkv.data() + first * qkv_row + p * PANEL, qkv_row);
        });
    }

    // h += y · matrix, or the norm of that, for the first rows
    template <class N>
    void add_product(Scratch &s, const Buffer<N> &y, long count, long y_row, const Word *matrix, long inputs, const float *norm = nullptr) {
        const Rows x = given(s, y, count, y_row, inputs);
        if (norm) return add_normalised(x, matrix, inputs, norm);
        panels(m.width, x, [&](long first, long count, long p) {
            float *sums = s.sums.data();
            multiply(x, first, count, matrix, p, inputs, sums, PANEL);
            for (long r = 0; r < count; ++r)
                for (long j = 0; j < PANEL; j += LANES) {
                    float *to = h.data() + (first + r) * x_row + p * PANEL + j;
                    store(to, load(to) + load(sums + r * PANEL + j));
                }
        });
    }

    void add_normalised(const Rows &x, const Word *matrix, long inputs, const float *norm) {
        panels(m.width, x, [&](long first, long count, long p) {
            multiply(x, first, count, matrix, p, inputs, made.data() + first * x_row + p * PANEL, x_row);
        });
        team.share(x.count, [&](long r) {
            const float *from = made.data() + r * x_row, factor = normalising(from, m.width);
            float *to = h.data() + r * x_row;
            for (long j = 0; j < m.width; ++j) to[j] += from[j] * factor * norm[j];
        });
    }

    Floats activated(Floats x) const { return m.activation == GELU ? gelu(x) : m.activation == SILU ? silu(x) : relu(x); }

    // h += act(x · wi) · wo, or act(x · wi_0) · (x · wi_1) · wo where it is gated: there panels of the two take turns.
    // What lies between is bfloat16, unless products take floats: with many rows it does not stay in the caches.
    void feed_forward(Scratch &s, const Rows &x, const Layer &layer) {
        if constexpr (AS_THEY_ARE) feed(s, x, layer, fed, fed_row);
        else feed(s, x, layer, halves, halves_row());
    }

    template <class N> void feed(Scratch &s, const Rows &x, const Layer &layer, Buffer<N> &between, long row) {
        panels(m.feed_width, x, [&](long first, long count, long p) {
            float *sums = s.sums.data(), *more = s.more.data();
            multiply(x, first, count, layer.feed_in, p * (1 + m.gated), m.width, sums, PANEL);
            if (m.gated) multiply(x, first, count, layer.feed_in, 2 * p + 1, m.width, more, PANEL);
            for (long r = 0; r < count; ++r)
                for (long j = 0; j < PANEL; j += LANES) {
                    const Floats in = load(sums + r * PANEL + j), value = activated(in);
                    store(between.data() + (first + r) * row + p * PANEL + j, m.gated ? value * load(more + r * PANEL + j) : value);
                }
        });
        add_product(s, between, x.count, row, layer.feed_out, m.feed_width, layer.feed_post);
    }

    // Attention of neighbouring rows, the first of which is `row`, over the first columns of a head's cache; their queries lie
    // `query_row` numbers apart. `biased(r)` takes (c, scores), the scores of a row from column c on, to those with all that is added to them.
    template <class F>
    void attend(Scratch &s, const float *query, long query_row, long row, long count, long head, long length, Head cache, F biased) {
        const auto out = [&](long r) { return attended.data() + (row + r) * attended_row + head * m.head_width; };
        attend(s, query, query_row, count, 0, length, cache, biased, out);
    }

    // The same for `count` queries over the columns from `begin`, where a panel begins, to `end`; results go to out(r).
    template <class F, class G>
    void attend(Scratch &s, const float *query, long query_row, long count, long begin, long end, Head cache, F biased, G out) {
        const long length = end - begin, padded = round_up(length, PANEL);
        float *scores = s.scores.data(), *sums = s.sums.data();
        // Rows as the cache is multiplied with, which `s.words` hold if they are words.
        const auto product_with = [&](const float *x, long x_row, const Word *panel, long stride, long units, float *out, long out_row) {
            if constexpr (IN_WORDS) product<K>(m.tiles, s.words.data(), seen_row, count, panel, stride, units, out, out_row);
            else product<K>(false, x, x_row, count, panel, stride, units, out, out_row);
        };
        if constexpr (IN_WORDS)
            for (long r = 0; r < count; ++r) K::give(query + r * query_row, m.head_width, head_units, s.words.data() + r * seen_row);
        for (long c = 0; c < padded; c += PANEL)
            product_with(query, query_row, cache.keys + (begin + c) * head_units, PANEL, head_units, scores + c, score_row);
        for (long r = 0; r < count; ++r) {
            float *mine = scores + r * score_row;
            const auto added = biased(r);
            Floats most = all(-INF), total = {};
            for (long c = 0; c < padded; c += LANES) {
                const Floats seen = until(length - c, added(begin + c, load(mine + c)));
                store(mine + c, seen);
                most = seen > most ? seen : most;
            }
            const Floats largest = all(largest_lane(most));
            for (long c = 0; c < padded; c += LANES) {
                const Floats weight = exponential(load(mine + c) - largest);
                total = total + weight;
                if constexpr (IN_WORDS) store(reinterpret_cast<uint16_t *>(s.words.data() + r * seen_row) + c, weight);
                else store(mine + c, weight);
            }
            mine[score_row - 1] = sum_of(total); // behind them
        }
        for (long j = 0; j < head_room; j += PANEL)
            product_with(scores, score_row, cache.values + begin / K::NUMBERS * head_room + j, head_room, units<K>(length), sums + j, head_room);
        for (long r = 0; r < count; ++r) {
            const float factor = 1.0f / scores[r * score_row + score_row - 1];
            float *to = out(r);
            for (long j = 0; j < m.head_width; ++j) to[j] = sums[r * head_room + j] * factor;
        }
    }

    // The cache of one head in buffers with `room` columns for each.
    Head head_at(Word *keys, Word *values, long place, long room) const {
        return {keys + place * room * head_units, values + place * (room / K::NUMBERS) * head_room};
    }

    // Put the key of row r and the value behind it into a column; keys begin at number `from` of a row.
    void keep(Head cache, long column, long r, long head, long from) const {
        const float *key = qkv.data() + r * qkv_row + from + head * m.head_width;
        remember(cache, column, key, key + inner_kv);
    }

    // Put one token's key and value into its column.
    void remember(Head cache, long column, const float *key, const float *value) const {
        Word *panel = cache.keys + column / PANEL * PANEL * head_units + column % PANEL;
        const long used = m.head_width / K::NUMBERS;
        for (long u = 0; u < used; u += LANES) {
            const long count = std::min<long>(LANES, used - u);
            const float *from = key + u * K::NUMBERS;
            Word words[LANES];
            if constexpr (IN_WORDS) K::give(from, count * K::NUMBERS, LANES, words);
            else
                for (long i = 0; i < count; ++i) words[i] = K::pack(from + i * K::NUMBERS);
            for (long i = 0; i < count; ++i) panel[(u + i) * PANEL] = words[i];
        }
        Word *row = cache.values + column / K::NUMBERS * head_room;
        for (long j = 0; j < m.head_width; ++j) {
            if constexpr (K::NUMBERS == 1) {
                row[j] = bits_as<Word>(value[j]);
            } else { // neighbouring columns share a word
                const int shift = column % 2 * 16;
                row[j] = (row[j] & ~(0xffffu << shift)) | BFloat16::round(value[j]) << shift;
            }
        }
    }

    const Model &m;
    Team team;
    const long n, pieces;
    const bool few;
    const long inner, inner_kv, head_units, head_room; // numbers of all heads' queries, and keys; of one head in a cache
    // Numbers from one row to the next; not multiples of 4 KB, which would put all rows into the same places of a cache.
    const long x_row, qkv_row, attended_row, fed_row, words_row;
    long score_row = 0, seen_row = 0;
    Buffer<float> h, qkv, attended, fed, made;
    Buffer<uint16_t> halves;
    Prepared common; // of many rows
    std::vector<Scratch> scratch;
};

constexpr long PIECE = 32 * TILE_ROWS; // rows of sources that a piece of work computes a panel for, at most

} // namespace
