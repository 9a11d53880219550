#pragma once

// What a decoder call ends with: the most probable next token of each row that wants one.

#include "block.h"

namespace {

template <class E, class K = E> class Answering : protected Block<E, K> {
    using B = Block<E, K>;

  protected:
    using typename B::Rows;
    using B::m, B::team;

    Answering(const Model &model, long count, const Row *rows, long piece, int threads) : B(model, count, piece, threads), rows(rows) {
        long choices = 0;
        for (long r = 0; r < count; ++r) {
            if (rows[r].choices < 0) continue;
            asked.push_back({r});
            first_choice.push_back(choices);
            choices += rows[r].choices;
        }
    }

    // `logits` gets [rows that want an answer][vocabulary in whole panels]; `probabilities`, if not null, the softmax of
    // each answer, and then there are no logits left. Rows with choices take theirs from `allowed` in turn.
    void answer(Scratch &s, const int64_t *allowed, int64_t *answers, float *logits, float *probabilities) {
        const long vocabulary = round_up(m.vocabulary, PANEL), wanted = static_cast<long>(asked.size());
        const Rows x = B::normalised(s, asked, m.final_norm, static_cast<float>(m.scale));
        B::panels(vocabulary, wanted, [&](long first, long count, long p) {
            B::multiply(x, first, count, m.head, p, m.width, logits + first * vocabulary + p * PANEL, vocabulary);
        });
        team.share(wanted, [&](long k) { // the lowest id wins among equals
            float *row = logits + k * vocabulary;
            if (m.cap > 0) keep_within(static_cast<float>(m.cap), row, vocabulary);
            std::fill(row + m.vocabulary, row + vocabulary, -INF);
            const long r = asked[k], count = rows[r].choices;
            const int64_t *from = allowed + first_choice[k];
            if (count) {
                const auto less = [&](int64_t a, int64_t b) { return row[a] < row[b]; };
                answers[r] = *std::max_element(from, from + count, less);
            } else {
                const float largest = largest_of(row, vocabulary);
                const long best = std::find(row, row + m.vocabulary, largest) - row;
                answers[r] = best < m.vocabulary ? best : 0; // of numbers that are none, none is the largest
            }
            if (!probabilities) return;
            const float sum = exponentials(row, vocabulary);
            probabilities[r] = row[answers[r]] / sum;
        });
    }

    const Row *rows;
    std::vector<long> asked; // the rows that want an answer

  private:
    // Numbers bent to lie between −cap and cap, in place.
    static void keep_within(float cap, float *numbers, long padded) {
        for (long i = 0; i < padded; i += LANES) store(numbers + i, all(cap) * hyperbolic_tangent(load(numbers + i) / all(cap)));
    }

    std::vector<long> first_choice; // of each of them, in `allowed`
};

} // namespace
