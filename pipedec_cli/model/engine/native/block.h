#pragma once

// The parts of a layer: attention over cached keys and values, and the feed-forward part.

#include "states.h"

namespace {

// The cache of one head: keys are panels with a token in each column, values are rows of whole panels.
struct Head {
    Word *keys, *values;
};
struct Columns { // some of a head's; `begin` is a multiple of PANEL, and only the last ones may end elsewhere
    long begin, end;
};

// E: the kind of numbers in matrices, K: the kind in the cache.
template <class E, class K = E> class Block : protected States<E> {
    using S = States<E>;

  protected:
    using S::h, S::qkv, S::made, S::scratch, S::m, S::team, S::n, S::few, S::pieces, S::inner, S::inner_kv, S::x_row, S::qkv_row,
        S::attended_row, S::fed_row, S::AS_THEY_ARE, S::multiply, S::project, S::panels, S::given, S::add_product;
    using typename S::Rows;

  public:
    Block(const Model &model, long rows, long piece, int threads)
        : S(model, rows, piece, threads), head_units(units<K>(m.head_width)), head_room(round_up(m.head_width, PANEL)) {}

    // Keep the keys and values of a source for every layer. `states` are the encoder's last states, [length][width].
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
    static constexpr bool IN_WORDS = !std::is_same_v<typename K::Given, float>; // the cache is multiplied with words, not floats

    long halves_row() const { return round_up(m.feed_width, PANEL) + 2 * LANES; }

    // Make room for attention of up to `queries` rows at once over up to `longest` columns, and for the layers' products.
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

    Floats activated(Floats x) const { return m.activation == GELU ? gelu(x) : m.activation == SILU ? silu(x) : relu(x); }

    // h += act(x · wi) · wo. Gated, h += act(x · wi_0) · (x · wi_1) · wo.
    // Unless products take floats, the numbers between the two matrices are bfloat16: many rows of them leave the caches.
    void feed_forward(Scratch &s, const Rows &x, const Layer &layer) {
        if constexpr (AS_THEY_ARE) feed(s, x, layer, fed, fed_row);
        else feed(s, x, layer, halves, halves_row());
    }

    template <class N> void feed(Scratch &s, const Rows &x, const Layer &layer, Buffer<N> &between, long row) {
        panels(m.feed_width, x, [&](long first, long count, long p) {
            float *sums = s.sums.data(), *more = s.more.data();
            multiply(x, first, count, place_in(layer.feed_in.parts[0], p), m.width, sums, PANEL);
            if (m.gated) multiply(x, first, count, place_in(layer.feed_in.parts[1], p), m.width, more, PANEL);
            for (long r = 0; r < count; ++r)
                for (long j = 0; j < PANEL; j += LANES) {
                    const Floats in = load(sums + r * PANEL + j), value = activated(in);
                    store(between.data() + (first + r) * row + p * PANEL + j, m.gated ? value * load(more + r * PANEL + j) : value);
                }
        });
        add_product(s, between, x.count, row, layer.feed_out, m.feed_width, layer.feed_post);
    }

    // Attention of `count` neighbouring rows from `row` on, over the first `length` columns of a head's cache. Their queries
    // lie `query_row` numbers apart. `biased(r)` gives a function of (c, scores): it adds the bias and the mask of row r to
    // its scores from column c on.
    template <class F>
    void attend(Scratch &s, const float *query, long query_row, long row, long count, long head, long length, Head cache, F biased) {
        const auto out = [&](long r) { return attended.data() + (row + r) * attended_row + head * m.head_width; };
        attend(s, query, query_row, count, std::array<Columns, 1>{{{0, length}}}, cache, biased, out);
    }

    // The same over parts of the columns; their scores stand one behind the other. The result of row r goes to out(r).
    template <class P, class F, class G>
    void attend(Scratch &s, const float *query, long query_row, long count, const P &parts, Head cache, F biased, G out) {
        float *scores = s.scores.data(), *sums = s.sums.data();
        // If the cache is multiplied with words, the rows are in `s.words` in place of `x`.
        const auto product_with = [&](const float *x, long x_row, long from, const Word *panel, long stride, long units, float *out, long out_row,
                                      const Word *next = nullptr) {
            if constexpr (IN_WORDS)
                product<K>(m.tiles, s.words.data() + from / K::NUMBERS, seen_row, count, panel, stride, units, out, out_row, from > 0, next);
            else product<K>(false, x + from, x_row, count, panel, stride, units, out, out_row, from > 0, next);
        };
        if constexpr (IN_WORDS)
            for (long r = 0; r < count; ++r) K::give(query + r * query_row, m.head_width, head_units, s.words.data() + r * seen_row);
        long padded = 0;
        for (const Columns &part : parts)
            for (long c = part.begin; c < part.end; c += PANEL, padded += PANEL) // meanwhile the values come into the cache
                product_with(query, query_row, 0, cache.keys + c * head_units, PANEL, head_units, scores + padded, score_row,
                             cache.values + c / K::NUMBERS * head_room);
        for (long r = 0; r < count; ++r) {
            float *mine = scores + r * score_row;
            const auto added = biased(r);
            Floats most = all(-INF), total = {};
            float *to = mine;
            for (const Columns part : parts) // copied: the compiler would load them again behind each store
                for (long c = part.begin, end = round_up(part.end, PANEL); c < end; c += LANES, to += LANES) {
                    const Floats seen = until(part.end - c, added(c, load(to)));
                    store(to, seen);
                    most = seen > most ? seen : most;
                }
            const Floats largest = all(largest_lane(most));
            for (long c = 0; c < padded; c += LANES) {
                const Floats weight = exponential(load(mine + c) - largest);
                total = total + weight;
                if constexpr (IN_WORDS) store(reinterpret_cast<uint16_t *>(s.words.data() + r * seen_row) + c, weight);
                else store(mine + c, weight);
            }
            mine[score_row - 1] = sum_of(total); // behind the scores
        }
        for (long j = 0; j < head_room; j += PANEL) {
            long from = 0;
            for (const Columns &part : parts) {
                const Word *values = cache.values + part.begin / K::NUMBERS * head_room + j;
                product_with(scores, score_row, from, values, head_room, units<K>(part.end - part.begin), sums + j, head_room);
                from += part.end - part.begin;
            }
        }
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

    // Put the key of row r, and the value behind it, into a column. Keys begin at number `from` of a row.
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

    const long head_units, head_room; // words of a head's key and numbers of its value in the cache
    long score_row = 0, seen_row = 0;
    Buffer<float> attended, fed;
    Buffer<uint16_t> halves;
};

} // namespace
