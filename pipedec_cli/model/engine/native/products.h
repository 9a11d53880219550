#pragma once

// Products of rows and panels, in vectors or in AMX's tile registers.

#include "groups.h"

#ifdef HAS_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

constexpr long CHUNK = (LANES == 16 ? 16384 : 6144) / PANEL; // units of a panel that stay in the cache for all rows: 64 or 24 KB of words
// The units that all blocks of rows take before the next are read. With two blocks memory bounds it: less is fetched ahead at once.
inline long chunk_of(long blocks, long units) {
    const long most = blocks == 1 ? units : blocks == 2 ? 2048 / PANEL : CHUNK, chunks = (units + most - 1) / most;
    return (units + chunks - 1) / chunks;
}
constexpr long BLOCK = TILE > 1 ? 2 * TILE : 36; // rows, in whole tiles, that are multiplied with a small panel before their sums are used

// ---- products in vectors

// The sums of R rows. GCC would leave some sums of an array in memory.
template <class V, int R> struct RowSums {
    static constexpr int ROWS = R;
    V left, right;
    RowSums<V, R - 1> next;
};
template <class V> struct RowSums<V, 0> {};
// Call work(r, sums of row r, …) for each row from r on.
template <class F, class S, class... Others>
__attribute__((always_inline)) inline void each_row(long r, F work, S &sums, Others &...others) {
    work(r, sums, others...);
    if constexpr (S::ROWS > 1) each_row(r + 1, work, sums.next, others.next...);
}

// out[R][PANEL] (+)= x[R][units] · panel[units][PANEL], where a row of the panel begins `stride` words behind the row before.
template <class E, int R>
void tile(const typename E::Given *x, long x_row, const Word *panel, long stride, long units, float *out, long out_row, bool more,
          const Word *ahead, long step) {
    RowSums<typename E::Sums, R> all_sums;
    each_row(0, [&](long r, auto &sums) {
        sums.left = more ? reinterpret_cast<typename E::Sums>(load(out + r * out_row)) : typename E::Sums{};
        sums.right = more ? reinterpret_cast<typename E::Sums>(load(out + r * out_row + LANES)) : typename E::Sums{};
    }, all_sums);
#pragma GCC unroll STEPS_TOGETHER
    for (long u = 0; u < units; ++u, panel += stride, ahead += step) {
        __builtin_prefetch(ahead);
        if (PANEL * 4 > 64) __builtin_prefetch(ahead + LANES);
#pragma GCC unroll 2
        for (long k = 0; k < E::GIVEN; ++k) {
            const Word *words = anew(panel);
            auto left_weights = E::part(load_words(words), k), right_weights = E::part(load_words(words + LANES), k);
            in_registers(left_weights);
            in_registers(right_weights);
            each_row(0, [&](long r, auto &sums) {
                const auto *given = x + r * x_row + u * E::GIVEN + k;
                sums.left = E::add(sums.left, left_weights, given);
                sums.right = E::add(sums.right, right_weights, given);
            }, all_sums);
        }
    }
    each_row(0, [&](long r, auto &sums) {
        store(out + r * out_row, reinterpret_cast<Floats>(sums.left));
        store(out + r * out_row + LANES, reinterpret_cast<Floats>(sums.right));
    }, all_sums);
}

template <class E, int R = TILE_ROWS, class... Arguments> void tile_of(long rows, Arguments... arguments) {
    if (rows == R) tile<E, R>(arguments...);
    else if constexpr (R > 1) tile_of<E, R - 1>(rows, arguments...);
}

// ---- products in AMX's tile registers

#ifdef HAS_TILES
// Ask the system once whether this process may use the registers.
inline bool may_use_tiles() {
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    static const bool may = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    return may;
}

// While an object lives, this thread can use the registers: 0 to 3 for sums of up to 32 rows × one panel, 4 and 5 for the
// rows, 6 and 7 for the panel.
class TileRegisters {
  public:
    ~TileRegisters() {
        if (shaped) _tile_release();
        shaped = 0;
    }
    // For so many rows of `words` words, and panels of `words` rows.
    static void shape(long rows, long words) {
        if (rows * 64 + words == shaped) return;
        struct {
            uint8_t palette = 1, start = 0, reserved[14] = {};
            uint16_t bytes[16] = {};
            uint8_t rows[16] = {};
        } config;
        const auto first = static_cast<uint8_t>(std::min(rows, TILE)), second = static_cast<uint8_t>(rows - first);
        const auto deep = static_cast<uint8_t>(words);
        const uint8_t heights[] = {first, first, second, second, first, second, deep, deep};
        for (int i = 0; i < 8; ++i)
            if ((config.rows[i] = heights[i])) config.bytes[i] = static_cast<uint16_t>(WORD_BYTES * (i == 4 || i == 5 ? words : TILE));
        __asm__ volatile("ldtilecfg %0" ::"m"(config));
        shaped = rows * 64 + words;
    }

  private:
    static inline thread_local long shaped = 0; // what the registers are shaped for
};

// The sums of bytes with a sign, in rows, and without, in a panel; or of bfloat16.
#define TILE_SUMS(SUM, ROWS, PANELS)                                                                                        \
    if constexpr (std::is_same_v<E, Integers>) _tile_dpbsud(SUM, ROWS, PANELS);                                                 \
    else _tile_dpbf16ps(SUM, ROWS, PANELS)

// out[rows][PANEL] (+)= x · panel, float32, or int32 for integers; `units` is a multiple of WORDS, the words of a row that are
// multiplied at once.
template <class E, long WORDS = TILE>
void in_tiles(const Word *x, long x_row, long rows, const Word *panel, long stride, long units, float *out, long out_row, bool more = false) {
    __asm__ volatile("" ::: "memory"); // the compiler does not know that the registers read memory
    for (long r = 0; r < rows; r += 2 * TILE, x += 2 * TILE * x_row, out += 2 * TILE * out_row) {
        const long height = std::min(rows - r, 2 * TILE);
        TileRegisters::shape(height, WORDS);
        const Word *from = panel;
        const long below = TILE * x_row;
        if (more) {
            _tile_loadd(0, out, out_row * WORD_BYTES);
            _tile_loadd(1, out + LANES, out_row * WORD_BYTES);
        } else {
            _tile_zero(0);
            _tile_zero(1);
        }
        if (height > TILE && more) {
            _tile_loadd(2, out + TILE * out_row, out_row * WORD_BYTES);
            _tile_loadd(3, out + TILE * out_row + LANES, out_row * WORD_BYTES);
        } else if (height > TILE) {
            _tile_zero(2);
            _tile_zero(3);
        }
        for (long u = 0; u < units; u += WORDS, from += WORDS * stride) {
            if (rows < 2 * TILE) // memory bounds it
                for (long ahead = 0; ahead < WORDS * stride; ahead += LANES) __builtin_prefetch(from + AHEAD * PANEL + ahead);
            _tile_loadd(6, from, stride * WORD_BYTES);
            _tile_loadd(7, from + LANES, stride * WORD_BYTES);
            _tile_loadd(4, x + u, x_row * WORD_BYTES);
            TILE_SUMS(0, 4, 6);
            TILE_SUMS(1, 4, 7);
            if (height > TILE) {
                _tile_loadd(5, x + below + u, x_row * WORD_BYTES);
                TILE_SUMS(2, 5, 6);
                TILE_SUMS(3, 5, 7);
            }
        }
        _tile_stored(0, out, out_row * WORD_BYTES);
        _tile_stored(1, out + LANES, out_row * WORD_BYTES);
        if (height > TILE) {
            _tile_stored(2, out + TILE * out_row, out_row * WORD_BYTES);
            _tile_stored(3, out + TILE * out_row + LANES, out_row * WORD_BYTES);
        }
    }
}
#undef TILE_SUMS
#else
inline bool may_use_tiles() { return false; }
struct TileRegisters {};
#endif

// out[rows][PANEL] (+)= x · panel for any number of rows. Behind its numbers x must be 0 up to a whole word. In vectors a chunk
// of the panel serves all rows before the next chunk is read. What is `next`, or else the panel, is fetched into the cache meanwhile.
template <class E>
void product([[maybe_unused]] bool tiles, const typename E::Given *x, long x_row, long rows, const Word *panel, long stride, long units,
             float *out, long out_row, bool more = false, const Word *next = nullptr) {
#ifdef HAS_TILES
    if constexpr (E::UNITS == TILE)
        if (tiles) return in_tiles<E>(x, x_row, rows, panel, stride, units, out, out_row, more);
#endif
    const long blocks = (rows + TILE_ROWS - 1) / TILE_ROWS;
    const long chunk = chunk_of(blocks, units);
    for (long from = 0; from < units; from += chunk) {
        const long count = std::min(chunk, units - from);
        const Word *here = panel + from * stride, *ahead = next ? next + from * stride : here + (blocks == 1 ? AHEAD : count) * stride;
        for (long block = 0, row = 0; block < blocks; ++block) {
            const long height = rows / blocks + (block < rows % blocks);
            tile_of<E>(height, x + row * x_row + from * E::GIVEN, x_row, here, stride, count, out + row * out_row, out_row, more || from > 0,
                       ahead + block * count * stride / blocks, stride / blocks);
            row += height;
        }
    }
}

// ---- products in groups

#ifdef HAS_INT8
// The groups of a row or a panel.
inline long groups_of(long inputs) { return (inputs + GROUP - 1) / GROUP; }

// How far ahead weights are fetched into the cache, in groups: some two pages of memory.
template <class W> constexpr long FETCHED = W::LOW == 8 ? 8 : 16;

// The sum so far, and the sums of a group times the scales of weights and row.
inline Floats with_group(Floats before, Ints sums, Floats scales, const Word *facts) {
    return multiply_add(__builtin_convertvector(sums, Floats), scales * all(bits_as<float>(facts[0])), before);
}

#ifdef __ARM_FEATURE_MATMUL_INT8
// Add the products of some words of a group to the sums of R rows, two rows and two outputs at a time: the instruction
// multiplies 8 inputs of each, and its sums are those of ((row, output), (row, next output), (next row, output), (next row,
// next output)).
template <class W, int R> void in_squares(const Word *x, long x_row, const Word *words, long begin, long end, RowSums<Ints, R> &all_sums) {
    Ints squares[(R + 1) / 2][PANEL / 2] = {};
    for (long u = begin; u < end; u += 2) {
        Ints outputs[PANEL / 2]; // the 8 inputs of two outputs
        for (long half = 0; half < 2; ++half) {
            const auto low = (int32x4_t)W::part(words, u / W::PARTS, u % W::PARTS, half * LANES);
            const auto high = (int32x4_t)W::part(words, (u + 1) / W::PARTS, (u + 1) % W::PARTS, half * LANES);
            outputs[2 * half] = (Ints)vzip1q_s32(low, high);
            outputs[2 * half + 1] = (Ints)vzip2q_s32(low, high);
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; r += 2) {
            const Word *mine = x + r * x_row + u, *next = r + 1 < R ? mine + x_row : mine;
            const int8x16_t rows = vreinterpretq_s8_u32(vcombine_u32(vld1_u32(mine), vld1_u32(next)));
#pragma GCC unroll 4
            for (long j = 0; j < PANEL / 2; ++j) squares[r / 2][j] = (Ints)vmmlaq_s32((int32x4_t)squares[r / 2][j], rows, (int8x16_t)outputs[j]);
        }
    }
    each_row(0, [&](long r, auto &sums) {
        const auto more = [&](long j) { // a row's sums are one half of each square
            const auto square = (int64x2_t)squares[r / 2][j], next = (int64x2_t)squares[r / 2][j + 1];
            return (Ints)(r % 2 ? vzip2q_s64(square, next) : vzip1q_s64(square, next));
        };
        sums.left += more(0);
        sums.right += more(2);
    }, all_sums);
}
#endif

// Add the products of a half of a group to the sums of R rows.
template <class W, int R>
__attribute__((always_inline)) inline void half_sums(const Word *x, long x_row, const Word *words, long half, RowSums<Ints, R> &all_sums,
                                                     const Word *&ahead, long step) {
    constexpr long ROWS = W::ROWS / W::HALVES;
#ifdef __ARM_FEATURE_MATMUL_INT8
    constexpr bool SQUARES = R > 1;
    if constexpr (SQUARES) in_squares<W, R>(x, x_row, words, half * W::UNITS / W::HALVES, (half + 1) * W::UNITS / W::HALVES, all_sums);
#else
    constexpr bool SQUARES = false;
#endif
#pragma GCC unroll 1 // else GCC fetches all that is ahead at once, and memory is slower
    for (long u = half * ROWS; u < (half + 1) * ROWS; ++u, ahead += step) {
        __builtin_prefetch(ahead);
        if (PANEL * 4 > 64) __builtin_prefetch(ahead + LANES);
        if constexpr (SQUARES) continue; // the sums are there, and weights are fetched ahead as ever
#pragma GCC unroll 2 // as in `tile`: with one function for both GCC 12 makes int8 10 % slower with AVX2
        for (long k = 0; k < W::STEPS; ++k) {
            Ints left_weights = W::part(words, u, k, 0), right_weights = W::part(words, u, k, LANES);
            in_registers(left_weights);
            in_registers(right_weights);
            each_row(0, [&](long r, auto &sums) {
                const Word *given = x + r * x_row + W::BESIDE + u * W::STEPS + k;
                sums.left = W::add(sums.left, left_weights, given);
                sums.right = W::add(sums.right, right_weights, given);
            }, all_sums);
        }
    }
}

// out[R][PANEL] (+)= x[R] · groups of a panel from a super-group's beginning on. `facts` are those of the first row's first group.
template <class W, int R>
void group_tile(const Word *x, const Word *facts, long x_row, const Word *panel, long groups, float *out, long out_row, bool more,
                const Word *ahead, long step) {
    Floats left_out[R], right_out[R]; // in registers for few rows, else in the first cache
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        left_out[r] = more ? load(out + r * out_row) : Floats{};
        right_out[r] = more ? load(out + r * out_row + LANES) : Floats{};
    }
    Floats left_factors = {}, right_factors = {}, left_least = {}, right_least = {}; // of the super-group
    for (long g = 0; g < groups; ++g, x += Integers::ROW, facts += Integers::FACTS, panel += W::GROUP_WORDS) {
        if (g % W::TOGETHER == 0) {
            left_factors = W::factors(panel, 0), right_factors = W::factors(panel, LANES);
            left_least = W::least_factors(panel, 0), right_least = W::least_factors(panel, LANES);
            panel += W::HEAD;
        }
        __builtin_prefetch(ahead);
        ahead += step / 2;
        for (long u = 0; u < W::UPPER; ++u, ahead += step) {
            __builtin_prefetch(ahead);
            if (PANEL * 4 > 64) __builtin_prefetch(ahead + LANES);
        }
        for (long half = 0; half < W::HALVES; ++half) {
            RowSums<Ints, R> all_sums;
            each_row(0, [&](long r, auto &sums) { sums.left = sums.right = W::begin(facts + r * x_row, half); }, all_sums);
            half_sums<W, R>(x, x_row, panel + W::BEFORE, half, all_sums, ahead, step);
            const Floats left_scales = W::scales(left_factors, panel, half, 0), right_scales = W::scales(right_factors, panel, half, LANES);
            each_row(0, [&](long r, auto &sums) {
                const Word *mine = facts + r * x_row;
                left_out[r] = with_group(left_out[r], W::end(sums.left, mine, half), left_scales, mine);
                right_out[r] = with_group(right_out[r], W::end(sums.right, mine, half), right_scales, mine);
            }, all_sums);
        }
        if constexpr (W::MINIMA) {
            const Floats left_minima = W::minima(left_least, panel, 0), right_minima = W::minima(right_least, panel, LANES);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const Floats sum = all(-bits_as<float>(facts[r * x_row + 3]));
                left_out[r] = multiply_add(left_minima, sum, left_out[r]);
                right_out[r] = multiply_add(right_minima, sum, right_out[r]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        store(out + r * out_row, left_out[r]);
        store(out + r * out_row + LANES, right_out[r]);
    }
}

template <class W, int R = TILE_ROWS, class... Arguments> void group_tile_of(long rows, Arguments... arguments) {
    if (rows == R) group_tile<W, R>(arguments...);
    else if constexpr (R > 1) group_tile_of<W, R - 1>(rows, arguments...);
}

// As `product`, in groups. A chunk of the panel serves all rows before the next chunk is read.
template <class W>
void group_product(const Word *x, long x_row, long rows, const Word *panel, long groups, float *out, long out_row) {
    const long blocks = (rows + TILE_ROWS - 1) / TILE_ROWS;
    const long chunk = round_up(round_up(chunk_of(blocks, groups * W::UNITS), W::UNITS) / W::UNITS, W::TOGETHER);
    for (long from = 0; from < groups; from += chunk) {
        const long count = std::min(chunk, groups - from), words = count * (W::ROWS + W::UPPER);
        const Word *here = panel + W::super_at(from), *ahead = blocks == 1 ? panel + W::super_at(from + FETCHED<W>) : panel + W::super_at(from + count);
        for (long block = 0, row = 0; block < blocks; ++block) {
            const long height = rows / blocks + (block < rows % blocks);
            const Word *mine = x + row * x_row;
            group_tile_of<W>(height, mine + from * Integers::ROW, mine + groups * Integers::ROW + from * Integers::FACTS, x_row, here, count,
                             out + row * out_row, out_row, from > 0, ahead + block * words * PANEL / blocks, PANEL / blocks);
            row += height;
        }
    }
}
#endif

#ifdef HAS_TILES
constexpr long MOST_IN_VECTORS = 8; // up to so many rows vectors are faster than tiles, with the same sums

// out[rows][PANEL] (+)= x · GROUPS groups of a panel, for up to BLOCK rows.
template <long GROUPS>
void groups_in_tiles(const Word *x, const Word *facts, long x_row, long rows, const Word *panel, float *out, long out_row, bool more) {
    static_assert(LANES == TILE, "a vector is a row of a tile");
    alignas(64) float sums[GROUPS][BLOCK * PANEL]; // the bits of int32
    Floats scales[2][GROUPS];
    for (long g = 0; g < GROUPS; ++g) {
        const Word *group = panel + Eight::group_at(g);
        in_tiles<Integers, Integers::UNITS>(x + g * Integers::UNITS, x_row, rows, group, PANEL, Integers::UNITS, sums[g], PANEL);
        for (long j = 0; j < 2; ++j) scales[j][g] = Eight::factors(panel + Eight::super_at(g), j * LANES);
    }
    __asm__ volatile("" ::: "memory"); // the compiler does not know that the registers wrote memory
    for (long r = 0; r < rows; ++r, facts += x_row, out += out_row) {
        Floats left = more ? load(out) : Floats{}, right = more ? load(out + LANES) : Floats{};
#pragma GCC unroll 8
        for (long g = 0; g < GROUPS; ++g) {
            const Word *mine = facts + g * Integers::FACTS;
            const float *group = sums[g] + r * PANEL;
            const Ints begun = Eight::begin(mine, 0);
            left = with_group(left, reinterpret_cast<Ints>(load(group)) + begun, scales[0][g], mine);
            right = with_group(right, reinterpret_cast<Ints>(load(group + LANES)) + begun, scales[1][g], mine);
        }
        store(out, left);
        store(out + LANES, right);
    }
}

// As `group_product` of `Eight`, for up to BLOCK rows.
inline void groups_in_tiles(const Word *x, long x_row, long rows, const Word *panel, long groups, float *out, long out_row) {
    constexpr long MOST = 8; // whose sums stay in the first cache
    for (long g = 0; g < groups;) {
        const Word *mine = x + g * Integers::UNITS, *facts = x + groups * Integers::UNITS + g * Integers::FACTS, *here = panel + Eight::super_at(g);
        const bool whole = groups - g >= MOST;
        (whole ? groups_in_tiles<MOST> : groups_in_tiles<1>)(mine, facts, x_row, rows, here, out, out_row, g > 0);
        g += whole ? MOST : 1;
    }
}
#endif

// ---- products of a kind

// The words of a panel of a kind.
inline long panel_words(long kind, long inputs) {
#ifdef HAS_INT8
    if (kind >= EIGHT) {
        long words = 0;
        as_integers(kind, [&](auto w) { words = decltype(w)::words(groups_of(inputs)); });
        return words;
    }
#endif
    const long words = kind == FLOAT32 ? units<Float32>(inputs) : (inputs + 1) / 2;
    return (kind == FLOAT32 ? words : round_up(words, TILE)) * PANEL;
}

// The weights of output j of a panel.
template <class E> void column([[maybe_unused]] long kind, const Word *panel, long inputs, long j, float *to) {
    if constexpr (!E::GROUPED)
        for (long i = 0; i < inputs; ++i) to[i] = E::get(panel + i / E::NUMBERS * PANEL + j, i % E::NUMBERS);
#ifdef HAS_INT8
    else
        as_integers(kind, [&](auto w) {
            for (long i = 0; i < inputs; ++i) to[i] = decltype(w)::get(panel, i, j);
        });
#endif
}

// out[rows][PANEL] = x · a panel of a matrix.
template <class E>
void matrix_product([[maybe_unused]] bool tiles, const typename E::Given *x, long x_row, long rows, [[maybe_unused]] long kind, const Word *panel,
                    long inputs, float *out, long out_row) {
    if constexpr (!E::GROUPED) product<E>(tiles, x, x_row, rows, panel, PANEL, units<E>(inputs), out, out_row);
#ifdef HAS_INT8
    else
        for (long r = 0; r < rows; r += BLOCK) { // what is added up stays in the first cache
            const long count = std::min(BLOCK, rows - r), groups = groups_of(inputs);
            const Word *from = x + r * x_row;
            float *to = out + r * out_row;
#ifdef HAS_TILES
            if (tiles && kind == EIGHT && count > MOST_IN_VECTORS) {
                groups_in_tiles(from, x_row, count, panel, groups, to, out_row);
                continue;
            }
#endif
            as_integers(kind, [&](auto w) { group_product<decltype(w)>(from, x_row, count, panel, groups, to, out_row); });
        }
#endif
}

} // namespace
