#pragma once

// The end of a decoder call: the most probable next token of each row that wants an answer.

#include "block.h"

namespace {

template <class E, class K = E> class Answering : protected Block<E, K> {
    using B = Block<E, K>;

  protected:
    using typename B::Rows;
    using H = typename HeadOf<E>::Kind;
    using B::m, B::team;

    Answering(const Model &model, long count, const Row *rows, long piece, int threads) : B(model, count, piece, threads), rows(rows) {
        long choices = 0;
        for (long r = 0; r < count; ++r) {
            if (rows[r].choices < 0) continue;
            asked.push_back(r);
            first_choice.push_back(choices);
            choices += rows[r].choices;
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

    // Answer the rows that are kept. `logits` gets [rows that want an answer][vocabulary in whole panels]. `probabilities`, if
    // not null, gets the softmax of each answer over the tokens that it is chosen from; this overwrites the logits. Rows with choices find theirs in `allowed`, one row
    // behind the other.
    void answer(Scratch &s, const int64_t *allowed, int64_t *answers, float *logits, float *probabilities) {
        const long vocabulary = round_up(m.vocabulary, PANEL), wanted = static_cast<long>(asked.size());
        const Rows x = B::template normalised<H>(s, wanted, m.final_norm, static_cast<float>(m.scale));
        B::panels(vocabulary, x, [&](long first, long count, long p) {
            float *out = logits + first * vocabulary + p * PANEL;
            B::template multiply<H>(x, first, count, m.head, p, m.width, out, vocabulary);
            for (long r = 0; r < count; ++r, out += vocabulary) {
                if (m.cap > 0) keep_within(static_cast<float>(m.cap), out);
                std::fill(out + std::min(PANEL, m.vocabulary - p * PANEL), out + PANEL, -INF);
                largest[(first + r) * largest_row + p] = largest_of(out, PANEL);
            }
        });
        team.share(wanted, [&](long k) {
            float *row = logits + k * vocabulary;
            const long r = asked[k], count = rows[r].choices;
            const int64_t *from = allowed + first_choice[k];
            const auto less = [&](int64_t a, int64_t b) { return row[a] < row[b]; };
            answers[r] = count ? *std::max_element(from, from + count, less) : best(row, largest.data() + k * largest_row);
            if (answers[r] >= 0 && std::isnan(row[answers[r]])) answers[r] = NO_NUMBER;
            if (!probabilities || answers[r] < 0) return;
            if (count) {
                const auto add = [&](float sum, int64_t token) { return sum + std::exp(row[token] - row[answers[r]]); };
                probabilities[r] = 1.0f / std::accumulate(from, from + count, 0.0f, add);
                return;
            }
            const float sum = exponentials(row, vocabulary);
            probabilities[r] = row[answers[r]] / sum;
        });
    }

    const Row *rows;
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

    const long largest_row = round_up(round_up(m.vocabulary, PANEL) / PANEL, PANEL);
    std::vector<float> largest; // largest logit of each row and panel, −∞ behind the last panel
    std::vector<long> first_choice; // of each row that wants an answer, in `allowed`
};

} // namespace
