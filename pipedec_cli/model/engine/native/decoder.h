#pragma once

// One decoder call of a T5: from token ids to the most probable next token of each row.
//
// A call with few rows reads every weight once, so memory bounds it. The weights are packed into panels that are read front
// to back, every panel serves all rows while it is in the cache, and the threads meet eight times a layer. Arithmetic bounds
// a call with many rows: for it the sums of a tile of rows × one panel stay in registers.

#include "answers.h"

namespace {

template <class E, class K = E> class Step : Answering<E, K> {
    using B = Answering<E, K>;
    using B::m, B::n, B::team, B::inner, B::qkv_row, B::attended_row, B::qkv, B::attended, B::scratch, B::rows, B::asked;

    struct Span { // the rows of one sequence; `first_asked` counts among all rows that want an answer
        long first, count, sequence, length, first_asked, asked;
    };

  public:
    Step(const Model &model, const Cache &cache, long count, const Row *rows, int threads)
        : B(model, count, rows, count, threads), cache(cache) {
        long most = 0, longest_source = 0, asking = 0;
        for (long r = 0; r < n; ++r) {
            if (r == 0 || rows[r].sequence != rows[r - 1].sequence) spans.push_back({r, 0, rows[r].sequence, 0, asking, 0});
            ++spans.back().count;
            const bool asks = rows[r].choices >= 0;
            spans.back().asked += asks, asking += asks;
            spans.back().length = rows[r].column + 1;
            longest = std::max<long>(longest, spans.back().length);
            longest_source = std::max<long>(longest_source, cache.source_length[rows[r].sequence]);
            most = std::max(most, spans.back().count);
        }
        B::make_room(most, std::max(longest, longest_source));
        qkv.resize(n * qkv_row);
        distance_row = round_up(longest, PANEL);
        distances.assign(n * distance_row, static_cast<int32_t>(m.reach));
    }

    // See `Answering::answer`.
    void run(const uint8_t *allowed, const int64_t *others, int64_t *answers, float *logits, float *odds) {
        place_rows();
        team.run([&](int thread) {
            Scratch &s = scratch[thread];
            for (long l = 0; l < m.layers; ++l) {
                const Layer &layer = m.layer[l];
                const bool last = l == m.layers - 1; // here only rows that want an answer go on
                const long count = last ? static_cast<long>(asked.size()) : n;
                B::project(B::normalised(s, n, layer.self_norm), layer.qkv, 3 * inner);
                if (last) B::keep_asked(true);
                attend_grid(s, l, layer.bias, last);
                B::add_product(s, attended, count, attended_row, layer.self_out, inner);
                B::project(B::normalised(s, count, layer.cross_norm), layer.cross_q, inner);
                attend_source(s, l, last);
                B::add_product(s, attended, count, attended_row, layer.cross_out, inner);
                B::feed_forward(s, B::normalised(s, count, layer.feed_norm), layer);
            }
            B::answer(s, allowed, others, answers, logits, odds);
        });
    }

  private:
    // Embed the tokens, enter their places into the cache, and find the distance of all tokens that each row sees.
    void place_rows() {
        for (long r = 0; r < n; ++r) {
            const long place = rows[r].sequence * cache.room + rows[r].column;
            cache.subsequence[place] = static_cast<int32_t>(rows[r].subsequence);
            cache.time[place] = static_cast<int32_t>(rows[r].time);
            cache.position[place] = static_cast<int32_t>(rows[r].position);
            B::embed(r, rows[r].token);
        }
        const int32_t hidden = static_cast<int32_t>(m.reach);
        for (const Span &span : spans)
            for (long r = span.first; r < span.first + span.count; ++r) {
                const int32_t *subsequence = cache.subsequence + span.sequence * cache.room;
                const int32_t *time = cache.time + span.sequence * cache.room;
                const int32_t *position = cache.position + span.sequence * cache.room;
                const auto i = static_cast<int32_t>(rows[r].subsequence), t = static_cast<int32_t>(rows[r].time);
                const auto p = static_cast<int32_t>(rows[r].position);
                int32_t *distance = distances.data() + r * distance_row;
                for (long c = 0; c < span.length; ++c) {
                    const bool sees = subsequence[c] <= i && time[c] <= t;
                    distance[c] = sees ? std::min(p - position[c], hidden - 1) : hidden;
                }
            }
    }

    // Attention of each sequence's rows over its grid, head by head. The rows' own keys and values enter the cache first.
    void attend_grid(Scratch &s, long layer, const float *bias, bool last) {
        each_head(layer, [&](const Span &span, long head, long place) {
            const Head mine = B::head_at(cache.keys, cache.values, place, cache.room);
            const float *by_distance = bias + head * (m.reach + 1);
            for (long r = span.first; r < span.first + span.count; ++r) B::keep(mine, rows[r].column, r, head, inner);
            attend(s, span, head, span.length, mine, last, [&](long r) {
                const int32_t *distance = distances.data() + (last ? asked[span.first_asked + r] : span.first + r) * distance_row;
                return [=](long c, Floats scores) {
                    Floats added;
                    for (int lane = 0; lane < LANES; ++lane) added[lane] = by_distance[distance[c + lane]];
                    return added == all(-INF) ? added : scores + added;
                };
            });
        });
    }

    void attend_source(Scratch &s, long layer, bool last) {
        each_head(layer, [&](const Span &span, long head, long place) {
            const Head source = B::head_at(cache.source_keys, cache.source_values, place, cache.source_room);
            attend(s, span, head, cache.source_length[span.sequence], source, last,
                   [](long) { return [](long, Floats scores) { return scores; }; });
        });
    }

    template <class F> void attend(Scratch &s, const Span &span, long head, long length, Head cache, bool last, F biased) {
        const long first = last ? span.first_asked : span.first, count = last ? span.asked : span.count;
        const float *query = qkv.data() + first * qkv_row + head * m.head_width;
        B::attend(s, query, qkv_row, first, count, head, length, cache, biased);
    }

    template <class F> void each_head(long layer, F work) {
        team.share(static_cast<long>(spans.size()) * m.heads, [&](long i) {
            const Span &span = spans[i / m.heads];
            work(span, i % m.heads, (layer * cache.sequences + span.sequence) * m.heads + i % m.heads);
        });
    }

    const Cache &cache;
    long longest = 0, distance_row = 0;
    std::vector<Span> spans;
    std::vector<int32_t> distances;
};

} // namespace
