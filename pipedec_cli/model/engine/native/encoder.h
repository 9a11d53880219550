#pragma once

// The encoder of a T5: from token ids to the last states, for several sources at once.
//
// Arithmetic bounds it: the sums of a tile of rows × one panel stay in registers. Sources stand one behind the other, so
// that nothing is computed for padding.

#include "block.h"

namespace {

template <class E, class K = E> class Encoding : Block<E, K> {
    using B = Block<E, K>;
    using B::m, B::n, B::team, B::inner, B::head_room, B::head_units, B::attended_row, B::attended, B::scratch;
    using typename B::Rows;

  public:
    Encoding(const Model &encoder, long count, const int64_t *lengths, const int64_t *tokens, int threads)
        : B(encoder, std::accumulate(lengths, lengths + count, 0L), PIECE, threads), tokens(tokens) {
        long first = 0;
        for (long s = 0; s < count; ++s) {
            sources.push_back({first, lengths[s]});
            first += lengths[s];
            longest = std::max<long>(longest, lengths[s]);
        }
        const long columns = round_up(longest, PANEL);
        B::make_room(QUERIES, longest);
        for (int i = 0; i < threads; ++i)
            heads.push_back({Buffer<float>(3 * longest * head_row), Buffer<Word>(columns * head_units), Buffer<Word>(columns / K::NUMBERS * head_room)});
        bias_row = 2 * longest - 1 + PANEL;
        bias.resize(m.heads * bias_row);
    }

    // Fill states[source], [padded length][width]. Numbers behind the end of a source stay as they are.
    void run(float *states, long padded) {
        team.run([&](int thread) {
            Scratch &s = scratch[thread];
            team.share(n, [&](long r) { B::embed(r, tokens[r]); });
            for (long l = 0; l < m.layers; ++l) {
                const Layer &layer = m.layer[l];
                if (l == 0 || layer.bias != m.layer[l - 1].bias) widen_bias(layer.bias);
                attend_all(s, heads[thread], B::normalised(s, n, layer.self_norm), layer);
                B::add_product(s, attended, n, attended_row, layer.self_out, inner);
                B::feed_forward(s, B::normalised(s, n, layer.feed_norm), layer);
            }
            team.share(static_cast<long>(sources.size()), [&](long i) {
                for (long c = 0; c < sources[i].length; ++c)
                    B::normalise(sources[i].first + c, m.final_norm, 1.0f, states + (i * padded + c) * m.width);
            });
        });
    }

  private:
    static constexpr long QUERIES = B::IN_WORDS ? BLOCK : 4 * TILE_ROWS; // scores of so many stay in the cache

    struct Source {
        long first, length;
    };
    struct OneHead { // of one source: query, key and value of its tokens, [3][longest][head_row], and the cache
        Buffer<float> qkv;
        Buffer<Word> keys, values;
    };

    // Write out the bias of each distance, so that the biases of a query's keys lie side by side.
    void widen_bias(const float *table) {
        team.share(m.heads, [&](long head) {
            for (long i = 0; i < 2 * longest - 1; ++i) {
                const long distance = std::max<long>(-m.reach, std::min<long>(m.reach, i - (longest - 1)));
                bias[head * bias_row + i] = table[head * (2 * m.reach + 1) + m.reach + distance];
            }
        });
    }

    // Queries, keys, values and attention. One thread computes a head of a source, whose numbers stay in its caches.
    void attend_all(Scratch &s, OneHead &mine, const Rows &x, const Layer &layer) {
        team.share(static_cast<long>(sources.size()) * m.heads, [&](long i) {
            const Source &source = sources[i / m.heads];
            const long head = i % m.heads;
            const float *parts[3];
            for (int part = 0; part < 3; ++part) {
                const long from = part * inner + head * m.head_width, panel = from / PANEL;
                float *to = mine.qkv.data() + part * longest * head_row;
                parts[part] = to + from % PANEL;
                for (long p = panel; p * PANEL < from + m.head_width; ++p, to += PANEL)
                    B::multiply(x, source.first, source.length, layer.qkv, p, m.width, to, head_row);
            }
            const float *query = parts[0], *key = parts[1], *value = parts[2];
            const Head cache = B::head_at(mine.keys.data(), mine.values.data(), 0, 0);
            for (long c = 0; c < source.length; ++c) B::remember(cache, c, key + c * head_row, value + c * head_row);
            for (long first = 0; first < source.length; first += QUERIES) {
                const long count = std::min(QUERIES, source.length - first);
                B::attend(s, query + first * head_row, head_row, source.first + first, count, head, source.length, cache,
                          [&](long r) {
                              const float *mine = bias.data() + head * bias_row + (longest - 1) - (first + r);
                              return [=](long c, Floats scores) { return scores + load(mine + c); };
                          });
            }
        });
    }

    const int64_t *tokens;
    std::vector<float> bias;
    long longest = 0, bias_row = 0;
    const long head_row = round_up(m.head_width + PANEL - 1, PANEL) + LANES; // a head may begin inside a panel
    std::vector<Source> sources;
    std::vector<OneHead> heads; // for each thread
};

} // namespace
