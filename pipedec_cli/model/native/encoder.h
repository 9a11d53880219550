#pragma once

// The encoder of a T5 in float32, from token ids to the last states, for several sources at once.
//
// It is bound by arithmetic: a tile of rows × one panel is kept in registers, and sources stand one behind the other, so
// that nothing is computed for padding.

#include <numeric>

#include "block.h"

namespace {

class Encoding : Block<Float32> {
  public:
    Encoding(const Model &encoder, long count, const int64_t *lengths, const int64_t *tokens, int threads)
        : Block(encoder, std::accumulate(lengths, lengths + count, 0L), PIECE, threads), tokens(tokens), x(n * x_row) {
        long first = 0, columns = 0;
        for (long s = 0; s < count; ++s) {
            sources.push_back({first, lengths[s], columns});
            for (long from = 0; from < lengths[s]; from += QUERIES)
                blocks.push_back({s, from, std::min(QUERIES, lengths[s] - from)});
            first += lengths[s];
            columns += round_up(lengths[s], PANEL);
            longest = std::max<long>(longest, lengths[s]);
        }
        make_room(QUERIES, longest);
        keys.resize(m.heads * columns * m.head_width);
        values.resize(m.heads * columns * head_room);
        bias_row = 2 * longest - 1 + PANEL;
        bias.resize(m.heads * bias_row);
    }

    // states[source] = [padded length][width]; what is beyond a source's own length is left as it is.
    void run(float *states, long padded) {
        team.run([&](int thread) {
            Scratch &s = scratch[thread];
            rows([&](long r) { embed(r, tokens[r]); });
            for (long l = 0; l < m.layers; ++l) {
                const Layer &layer = m.layer[l];
                if (l == 0 || layer.bias != m.layer[l - 1].bias) widen_bias(layer.bias);
                rows([&](long r) { normalise(r, layer.self_norm, 1.0f, x.data() + r * x_row); });
                project(x.data(), layer.qkv, 3 * inner);
                remember_all();
                attend_all(s);
                add_product(s, attended, attended_row, layer.self_out, inner);
                rows([&](long r) { normalise(r, layer.feed_norm, 1.0f, x.data() + r * x_row); });
                feed_forward(s, x.data(), layer);
            }
            team.share(static_cast<long>(sources.size()), [&](long i) {
                for (long c = 0; c < sources[i].length; ++c)
                    normalise(sources[i].first + c, m.final_norm, 1.0f, states + (i * padded + c) * m.width);
            });
        });
    }

  private:
    static constexpr long QUERIES = 4 * TILE_ROWS; // whose scores stay in the second cache

    struct Source {
        long first, length, column;
    };
    struct Queries { // neighbouring ones of a source
        long source, from, count;
    };

    template <class F> void rows(F work) {
        constexpr long TOGETHER = 16;
        team.share((n + TOGETHER - 1) / TOGETHER, [&](long i) {
            for (long r = i * TOGETHER; r < std::min(n, (i + 1) * TOGETHER); ++r) work(r);
        });
    }

    // The bias of every distance that occurs, so that a query's keys find theirs side by side.
    void widen_bias(const float *table) {
        team.share(m.heads, [&](long head) {
            for (long i = 0; i < 2 * longest - 1; ++i) {
                const long distance = std::max<long>(-m.reach, std::min<long>(m.reach, i - (longest - 1)));
                bias[head * bias_row + i] = table[head * (2 * m.reach + 1) + m.reach + distance];
            }
        });
    }

    // Keys and values lie source by source and head by head.
    Head cache_of(const Source &source, long head) {
        const long column = source.column * m.heads + head * round_up(source.length, PANEL);
        return head_at(keys.data(), values.data(), 1, column);
    }

    void remember_all() {
        team.share(static_cast<long>(sources.size()) * m.heads, [&](long i) {
            const Source &source = sources[i / m.heads];
            const long head = i % m.heads;
            for (long c = 0; c < source.length; ++c)
                remember(cache_of(source, head), c, qkv.data() + (source.first + c) * qkv_row + inner + head * m.head_width);
        });
    }

    void attend_all(Scratch &s) {
        team.share(static_cast<long>(blocks.size()) * m.heads, [&](long i) {
            const Queries &block = blocks[i / m.heads];
            const Source &source = sources[block.source];
            const long head = i % m.heads;
            attend(s, source.first + block.from, block.count, head, source.length, cache_of(source, head), [&](long r, float *scores) {
                const float *by_distance = bias.data() + head * bias_row + (longest - 1) - (block.from + r);
                for (long c = 0; c < source.length; c += LANES) store(scores + c, load(scores + c) + load(by_distance + c));
            });
        });
    }

    const int64_t *tokens;
    std::vector<float> x, bias;
    long longest = 0, bias_row = 0;
    std::vector<Source> sources;
    std::vector<Queries> blocks;
    std::vector<Word> keys, values;
};

} // namespace
