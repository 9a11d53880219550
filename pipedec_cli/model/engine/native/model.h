#pragma once

// The structures that Python hands over. `structures.py` declares them again for ctypes.

#include "kinds.h"

extern "C" {

// Panels of one kind, `stride` words apart; they are the panels of a matrix up to `end`.
struct Part {
    const Word *panels;
    int64_t kind, stride, end; // a value of `Kind`
};
// A matrix in panels: its parts follow each other. Of a gated `feed_in` part 0 is the gate and part 1 what it lets pass.
struct Matrix {
    Part parts[3];
};

struct Layer { // the cross_… parts belong to a T5's decoder alone
    const float *self_norm, *cross_norm, *feed_norm; // null: the states as they are
    const float *bias; // decoder: [heads][reach + 1], by distance up to reach − 1; column `reach` is −∞
                       // encoder: [heads][2 · reach + 1], by place of the key − place of the query
    Matrix qkv, self_out, cross_q, cross_kv, cross_out, feed_in, feed_out;
    // For decoder-only models; null where a family has none:
    const float *self_post, *feed_post; // norms of what attention and the feed-forward part add
    const float *query_norm, *key_norm; // of each head, [head_width]; with `wide_norms` of all, [heads · head_width]
    const float *qkv_bias;              // what is added to the product of `qkv`, in whole panels
    int64_t rotary;                     // the frequencies that turn the heads; −1: none
    int64_t windowed;                   // flag: rows see only what is nearer than the model's window
};

struct Model {
    int64_t layers, heads, key_heads, head_width, width, feed_width, vocabulary, reach;
    int64_t weights, activation; // values of `Kind` and `Activation`; weights of any kind of integers are EIGHT
    int64_t pairs, tiles, gated; // flags: bfloat16 is multiplied in pairs; tile registers are used; the feed-forward part is gated
    int64_t causal;              // flag: a decoder-only model, whose prompt is row 0 of the grid
    int64_t window, rotaries;    // positions that a windowed layer sees; number of kinds of frequencies
    int64_t wide_norms;          // flag: query_norm and key_norm are of all heads together
    double epsilon, scale;
    double embedding_scale, query_scale, residual; // factors of embeddings, of queries, and of what a part of a layer adds
    double cap, score_cap;                         // logits and scores of attention lie between ±cap; 0: no cap
    const void *embedding; // [vocabulary][width] in the weights' dtype; null: columns of the `table`
    const float *final_norm;
    const float *frequencies, *amplitudes; // radians for each position, [rotaries][head_width / 2]; of cosine and sine, [rotaries]
    Matrix head, table; // the output matrix, and one whose columns are embeddings
    const Layer *layer;
};

struct Cache {
    int64_t sequences, room, source_room; // rooms are columns, multiples of PANEL
    Word *keys, *values; // [layers][sequences][key heads][room / PANEL panels], [room / NUMBERS][padded width]
    Word *source_keys, *source_values;
    int32_t *subsequence, *time, *position; // [sequences][room]
    const int64_t *source_length;           // [sequences]
};

// One row of a call. Rows are ordered by sequence, and within a sequence by column.
struct Row {
    int64_t token, sequence, column, subsequence, time;
    int64_t choices;  // 1: a bit mask has the tokens that may answer; 0: all tokens may; −1: no answer is wanted
    int64_t position; // for decoder-only models
    int64_t end;      // a token whose probability is wanted, too; −1: none
    int64_t others;   // so many other such tokens stand in a list, behind those of the rows before
};
}

namespace {

// A panel of a matrix, and its kind.
struct Place {
    const Word *panel;
    long kind;
};

inline Place place_in(const Part &part, long panel) { return {part.panels + panel * part.stride, static_cast<long>(part.kind)}; }

// The place of a panel that is counted over all parts.
inline Place place_of(const Matrix &matrix, long panel) {
    const Part *part = matrix.parts;
    long before = 0;
    while (panel >= part->end) before = (part++)->end;
    return place_in(*part, panel - before);
}

enum Activation { RELU, GELU, SILU };

} // namespace
