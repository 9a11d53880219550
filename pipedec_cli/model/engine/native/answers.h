#pragma once

// The end of a decoder call: the most probable next token of each row that wants an answer.

#include "block.h"

namespace {

template <class E, class K = E> class Answering : protected Block<E, K> {
    using B = Block<E, K>;

  protected:
    using typename B::Rows;
    using B::m, B::team;

    Answering(const Model &model, long count, const Row *rows, long piece, int threads) : B(model, count, piece, threads), rows(rows), count(count) {
        long masks = 0, others = 0;
        for (long r = 0; r < count; ++r) {
            others += rows[r].others;
            if (rows[r].choices < 0) continue;
            asked.push_back(r);
            others_at.push_back(others - rows[r].others);
            mask_at.push_back(rows[r].choices ? masks++ * mask_bytes : -1);
        }
        largest.assign(asked.size() * largest_row, -INF);
    }

    // Go on with the rows that want an answer alone: they become the first rows, on demand with their queries.
    void keep_asked(bool queries) {
        const auto gather = [&](float *numbers, long row, long width) {
            for (size_t k = 0; k < asked.size(); ++k)
                if (asked[k] != static_cast<long>(k)) std::copy_n(numbers + asked[k] * row, width, numbers + k * row);
        };
        team.share(1, [&](long) {
            gather(B::h.data(), B::x_row, m.width);
            if (queries) gather(B::qkv.data(), B::qkv_row, B::inner);
        });
    }

    // Answer the rows that are kept. `logits` gets [rows that want an answer][vocabulary in whole panels]. `odds`, if
    // not null, gets three numbers for each row, see `Odds` in pipeline/grid.py, and behind them the probability of each
    // of the `others`, tokens that rows ask for. This overwrites the logits. `allowed` has a bit mask for each row with choices,
    // one behind the other.
    void answer(Scratch &s, const uint8_t *allowed, const int64_t *others, int64_t *answers, float *logits, float *odds) {
        const long vocabulary = round_up(m.vocabulary, PANEL), wanted = static_cast<long>(asked.size());
        const Rows x = B::normalised(s, wanted, m.final_norm, static_cast<float>(m.scale));
        B::panels(vocabulary, x, [&](long first, long count, long p) {
            float *out = logits + first * vocabulary + p * PANEL;
            B::multiply(x, first, count, m.head, p, m.width, out, vocabulary);
            for (long r = 0; r < count; ++r, out += vocabulary) {
                if (m.cap > 0) keep_within(static_cast<float>(m.cap), out);
                std::fill(out + std::min(PANEL, m.vocabulary - p * PANEL), out + PANEL, -INF);
                largest[(first + r) * largest_row + p] = largest_of(out, PANEL);
            }
        });
        team.share(wanted, [&](long k) {
            float *row = logits + k * vocabulary;
            const long r = asked[k];
            const uint8_t *mask = mask_at[k] < 0 ? nullptr : allowed + mask_at[k];
            answers[r] = mask ? best_of(row, mask) : best(row, largest.data() + k * largest_row);
            if (answers[r] >= 0 && std::isnan(row[answers[r]])) answers[r] = NO_NUMBER;
            if (!odds || answers[r] < 0) return;
            float *chance = odds + 3 * r, top = row[answers[r]], whole = 0, most = largest_of(largest.data() + k * largest_row, largest_row);
            if (mask) whole = sum_of_exponentials(row, vocabulary, most), close(row, mask);
            const float sum = exponentials(row, vocabulary); // the answer has the largest logit that is left
            chance[0] = row[answers[r]] / sum;
            if (rows[r].end >= 0) chance[1] = row[rows[r].end] / sum;
            chance[2] = mask ? std::min(1.0f, std::exp(top - most) * sum / whole) : 1;
            for (long i = others_at[k]; i < others_at[k] + rows[r].others; ++i) odds[3 * count + i] = row[others[i]] / sum;
        });
    }

    const Row *rows;
    const long count;
    std::vector<long> asked; // the rows that want an answer

  private:
    static constexpr int64_t NO_NUMBER = -1; // the answer if a logit is NaN

    // Bend the numbers of a panel to lie between −cap and cap, in place.
    static void keep_within(float cap, float *numbers) {
        for (long i = 0; i < PANEL; i += LANES) store(numbers + i, all(cap) * hyperbolic_tangent(load(numbers + i) / all(cap)));
    }

    // The token of the largest logit, found by the largest of each panel; among equals the lowest id.
    long best(const float *row, const float *of_panels) const {
        const float most = largest_of(of_panels, largest_row);
        const long panel = first_equal(of_panels, largest_row, most), token = first_equal(row + panel * PANEL, PANEL, most);
        return token < PANEL ? panel * PANEL + token : NO_NUMBER;
    }

    // The most probable of the tokens whose bits are set; among equals the lowest id.
    int64_t best_of(const float *row, const uint8_t *mask) const {
        int64_t found = NO_NUMBER;
        for (long byte = 0; byte < mask_bytes; ++byte) {
            const float *eight = row + 8 * byte; // a row of logits is whole panels
            if (found >= 0 && mask[byte] == 0xFF && *std::max_element(eight, eight + 8) <= row[found]) continue;
            for (unsigned bits = mask[byte]; bits; bits &= bits - 1) {
                const long token = 8 * byte + __builtin_ctz(bits);
                if (token < m.vocabulary && (found < 0 || row[token] > row[found])) found = token;
            }
        }
        return found;
    }

    // Put −∞ in the place of each token whose bit is not set.
    void close(float *row, const uint8_t *mask) const {
        for (long byte = 0; byte < mask_bytes; ++byte)
            for (unsigned bits = ~mask[byte] & 0xFFu; bits; bits &= bits - 1) row[8 * byte + __builtin_ctz(bits)] = -INF;
    }

    const long mask_bytes = (m.vocabulary + 7) / 8;
    const long largest_row = round_up(round_up(m.vocabulary, PANEL) / PANEL, PANEL);
    std::vector<float> largest; // largest logit of each row and panel, −∞ behind the last panel
    std::vector<long> others_at; // of each row that wants an answer, where its other tokens begin in the list
    std::vector<long> mask_at; // of each row that wants an answer, where its mask begins in `allowed`; −1 without one
};

} // namespace
