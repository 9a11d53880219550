#pragma once

// One call of a decoder-only model: from token ids to the most probable next token of each row that wants an answer.
//
// A prompt is row 0 of the grid. To read a prompt is a call of many rows that want no answer, and its keys lie in columns of
// the grid. Arithmetic bounds such a call: so it takes rows in pieces, and queries in blocks whose scores stay in the cache. It
// skips columns that no query of a block sees: those out of a window, and those of other rows that are blind.

#include "answers.h"

namespace {

template <class E, class K = E> class Causal : Answering<E, K> {
    using B = Answering<E, K>;
    using B::m, B::n, B::few, B::team, B::inner, B::inner_kv, B::qkv_row, B::attended_row, B::qkv, B::attended, B::scratch, B::rows,
        B::asked;

    struct Span { // the rows of one sequence
        long first, count, sequence;
    };
    struct Queries { // neighbouring rows whose attention is computed at once
        long first, count, sequence;
        long length;                    // the end of their columns
        std::vector<Columns> parts[2]; // the columns that one of them sees; in a windowed layer
        long open;                     // all of them see the first columns, unless a window hides some
    };

  public:
    Causal(const Model &model, const Cache &cache, long count, const Row *rows, int threads)
        : B(model, count, rows, PIECE, threads), cache(cache) {
        long longest = 0;
        for (long r = 0; r < n; ++r) {
            const Row &row = rows[r];
            const long place = row.sequence * cache.room + row.column;
            cache.subsequence[place] = static_cast<int32_t>(row.subsequence);
            cache.time[place] = static_cast<int32_t>(row.time);
            cache.position[place] = static_cast<int32_t>(row.position);
            const bool new_span = spans.empty() || row.sequence != spans.back().sequence;
            if (new_span) spans.push_back({r, 0, row.sequence});
            ++spans.back().count;
            if (new_span || blocks.back().count == together) blocks.push_back({r, 0, row.sequence, 0, {}, 0});
            ++blocks.back().count;
            blocks.back().length = row.column + 1;
            longest = std::max<long>(longest, row.column + 1);
        }
        for (Queries &block : blocks)
            for (const bool windowed : {false, true})
                if (m.window || !windowed) block.parts[windowed] = seen_by(block, windowed);
        const long queries = std::min<long>(together, n) * group;
        B::make_room(queries, longest);
        qkv.resize(n * qkv_row);
        turns.resize(m.rotaries * n * turn_row);
        for (int i = 0; i < threads; ++i) turned.emplace_back((queries + 1) * head_row);
    }

    // See `Answering::answer`.
    void run(const uint8_t *allowed, const int64_t *others, int64_t *answers, float *logits, float *odds) {
        team.run([&](int thread) {
            Scratch &s = scratch[thread];
            team.share(n, [&](long r) {
                B::embed(r, rows[r].token);
                find_turns(r);
            });
            for (long l = 0; l < m.layers; ++l) {
                const Layer &layer = m.layer[l];
                B::project(B::normalised(s, n, layer.self_norm), layer.qkv, inner + 2 * inner_kv, layer.qkv_bias);
                keep_all(turned[thread].data(), layer, l);
                if (l == m.layers - 1 && asked.empty()) return; // no row wants an answer
                attend_all(s, turned[thread].data(), layer, l);
                B::add_product(s, attended, n, attended_row, layer.self_out, inner, layer.self_post);
                B::feed_forward(s, B::normalised(s, n, layer.feed_norm), layer);
            }
            B::keep_asked(false);
            B::answer(s, allowed, others, answers, logits, odds);
        });
    }

  private:
    static constexpr long QUERIES = B::IN_WORDS ? BLOCK : 4 * TILE_ROWS; // scores of so many stay in the cache
    static constexpr long FEW_QUERIES = 12; // in a call of few rows: each thread has a block

    static Ints numbers(const int32_t *p) { return *reinterpret_cast<const LooseInts *>(p); }
    static Ints everywhere(int64_t x) { return all_words(static_cast<Word>(x)); }

    // The columns that a row of the block sees, in whole panels up to the end of the columns. Without a window, finds `open` too.
    std::vector<Columns> seen_by(Queries &block, bool windowed) const {
        Row most = rows[block.first], least = most;
        int64_t first = most.position;
        for (long r = block.first; r < block.first + block.count; ++r) {
            most.subsequence = std::max(most.subsequence, rows[r].subsequence);
            most.time = std::max(most.time, rows[r].time);
            least.subsequence = std::min(least.subsequence, rows[r].subsequence);
            least.time = std::min(least.time, rows[r].time);
            first = std::min(first, rows[r].position);
        }
        const long place = block.sequence * cache.room;
        const auto all_see = [&](long c) { return cache.subsequence[place + c] <= least.subsequence && cache.time[place + c] <= least.time; };
        while (!windowed && block.open < block.length && all_see(block.open)) ++block.open;
        std::vector<Columns> parts;
        for (long c = 0; c < block.length; ++c) {
            const bool hidden = cache.subsequence[place + c] > most.subsequence || cache.time[place + c] > most.time;
            if (hidden || (windowed && cache.position[place + c] <= first - m.window)) continue;
            const long panel = c / PANEL * PANEL;
            if (parts.empty() || parts.back().end < panel) parts.push_back({panel, panel});
            parts.back().end = std::min(panel + PANEL, block.length);
            c = panel + PANEL - 1; // its other columns come along
        }
        return parts;
    }

    // Compute cosines and sines of a row's angles for each kind of frequencies.
    void find_turns(long r) {
        for (long kind = 0; kind < m.rotaries; ++kind) {
            float *cosines = turns.data() + (kind * n + r) * turn_row, *sines = cosines + half;
            for (long j = 0; j < half; ++j) {
                const float angle = static_cast<float>(rows[r].position) * m.frequencies[kind * half + j];
                cosines[j] = std::cos(angle) * m.amplitudes[kind];
                sines[j] = std::sin(angle) * m.amplitudes[kind];
            }
        }
    }

    // Normalise and turn a head of row r, which begins at number `from`, as the layer does, and multiply it by a factor.
    void turn(const Layer &layer, const float *norm, long r, long from, float factor, float *to) const {
        const float *x = qkv.data() + r * qkv_row + from;
        if (norm && m.wide_norms) {
            const long begin = from < inner ? 0 : inner;
            factor *= B::normalising(x - (from - begin), from < inner ? inner : inner_kv);
            norm += from - begin;
        } else if (norm) factor *= B::normalising(x, m.head_width);
        for (long j = 0; j < m.head_width; ++j) to[j] = x[j] * factor * (norm ? norm[j] : 1.0f);
        if (layer.rotary < 0) return;
        const float *cosines = turns.data() + (layer.rotary * n + r) * turn_row, *sines = cosines + half;
        for (long j = 0; j < half; ++j) {
            const float left = to[j], right = to[half + j];
            to[j] = left * cosines[j] - right * sines[j];
            to[half + j] = right * cosines[j] + left * sines[j];
        }
    }

    Head head_at(long layer, long sequence, long head) const {
        return B::head_at(cache.keys, cache.values, (layer * cache.sequences + sequence) * m.key_heads + head, cache.room);
    }

    // Put the keys and values of all rows into their columns.
    void keep_all(float *key, const Layer &layer, long l) {
        team.share(static_cast<long>(spans.size()) * m.key_heads, [&](long i) {
            const Span &span = spans[i / m.key_heads];
            const long head = i % m.key_heads, from = inner + head * m.head_width;
            for (long r = span.first; r < span.first + span.count; ++r) {
                turn(layer, layer.key_norm, r, from, 1.0f, key);
                B::remember(head_at(l, span.sequence, head), rows[r].column, key, qkv.data() + r * qkv_row + from + inner_kv);
            }
        });
    }

    // Attention by blocks and heads of keys. Heads of queries that share a head of keys are queries of their own.
    void attend_all(Scratch &s, float *query, const Layer &layer, long l) {
        const long count = static_cast<long>(blocks.size());
        team.share(m.key_heads * count, [&](long i) {
            const Queries &block = blocks[i % count];
            const long first_head = i / count * group, place = block.sequence * cache.room;
            for (long r = 0; r < block.count; ++r)
                for (long g = 0; g < group; ++g)
                    turn(layer, layer.query_norm, block.first + r, (first_head + g) * m.head_width, static_cast<float>(m.query_scale),
                         query + (r * group + g) * head_row);
            const int32_t *subsequences = cache.subsequence + place, *times = cache.time + place, *positions = cache.position + place;
            const bool windowed = layer.windowed;
            const long open = windowed ? 0 : block.open;
            const auto seen = [&](long q) {
                const Row &row = rows[block.first + q / group];
                const Ints subsequence = everywhere(row.subsequence), time = everywhere(row.time), far = everywhere(row.position - m.window);
                const auto cap = static_cast<float>(m.score_cap);
                return [=](long c, Floats scores) {
                    if (cap > 0) scores = all(cap) * hyperbolic_tangent(scores / all(cap));
                    if (c + LANES <= open) return scores;
                    Ints hidden = (numbers(subsequences + c) > subsequence) | (numbers(times + c) > time);
                    if (windowed) hidden |= numbers(positions + c) <= far;
                    return hidden ? all(-INF) : scores;
                };
            };
            const auto out = [&](long q) {
                return attended.data() + (block.first + q / group) * attended_row + (first_head + q % group) * m.head_width;
            };
            B::attend(s, query, head_row, block.count * group, block.parts[windowed], head_at(l, block.sequence, i / count), seen, out);
        });
    }

    const Cache &cache;
    const long group = m.heads / m.key_heads, half = m.head_width / 2;
    const long together = std::max(1L, (few ? FEW_QUERIES : QUERIES) / group); // the most rows of a block
    const long turn_row = round_up(m.head_width, LANES), head_row = round_up(m.head_width, PANEL) + LANES;
    std::vector<Span> spans;
    std::vector<Queries> blocks;
    Buffer<float> turns;                // [kinds][rows][turn_row]: cosines, then sines
    std::vector<Buffer<float>> turned; // for each thread: heads of rows
};

} // namespace
