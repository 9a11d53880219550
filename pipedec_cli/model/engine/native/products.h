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
    static void shape(long rows) {
        if (rows == shaped) return;
        struct {
            uint8_t palette = 1, start = 0, reserved[14] = {};
            uint16_t bytes[16] = {};
            uint8_t rows[16] = {};
        } config;
        const auto first = static_cast<uint8_t>(std::min(rows, TILE)), second = static_cast<uint8_t>(rows - first);
        const uint8_t heights[] = {first, first, second, second, first, second, TILE, TILE};
        for (int i = 0; i < 8; ++i)
            if ((config.rows[i] = heights[i])) config.bytes[i] = 4 * TILE;
        __asm__ volatile("ldtilecfg %0" ::"m"(config));
        shaped = rows;
    }

  private:
    static inline thread_local long shaped = 0; // rows that the registers are shaped for
};

// The sums of bytes with a sign, in rows, and without, in a panel; or of bfloat16.
#define TILE_SUMS(SUM, ROWS, PANELS)                                                                                        \
    if constexpr (std::is_same_v<E, Int8>) _tile_dpbsud(SUM, ROWS, PANELS);                                                 \
    else _tile_dpbf16ps(SUM, ROWS, PANELS)

// out[rows][PANEL] (+)= x · panel, float32, or int32 for int8; `units` is a multiple of TILE.
template <class E>
void in_tiles(const Word *x, long x_row, long rows, const Word *panel, long stride, long units, float *out, long out_row, bool more = false) {
    __asm__ volatile("" ::: "memory"); // the compiler does not know that the registers read memory
    for (long r = 0; r < rows; r += 2 * TILE, x += 2 * TILE * x_row, out += 2 * TILE * out_row) {
        const long height = std::min(rows - r, 2 * TILE);
        TileRegisters::shape(height);
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
        for (long u = 0; u < units; u += TILE, from += TILE * stride) {
            if (rows < 2 * TILE) // memory bounds it
                for (long ahead = 0; ahead < TILE * stride; ahead += LANES) __builtin_prefetch(from + AHEAD * PANEL + ahead);
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

// As `product`, in groups. A chunk of the panel serves all rows before the next chunk is read.
template <class E> void group_product(const Word *x, long x_row, long rows, const Word *panel, long units, float *out, long out_row);

#ifdef HAS_INT8
constexpr long FETCHED = 256; // how far ahead weights are fetched into the cache, in inputs

// The sum so far, and the sums of a group times the scales of weights and row.
inline Floats with_group(Floats before, Ints sums, Floats scales, const Word *facts) {
    return multiply_add(__builtin_convertvector(sums, Floats), scales * all(bits_as<float>(facts[0])), before);
}

#ifdef __ARM_FEATURE_MATMUL_INT8
// Add the products of a group to the sums of R rows, two rows and two outputs at a time: the instruction multiplies 8 inputs
// of each, and its sums are those of ((row, output), (row, next output), (next row, output), (next row, next output)).
template <class E, int R> void in_squares(const Word *x, long x_row, const Word *words, RowSums<Ints, R> &all_sums) {
    Ints squares[(R + 1) / 2][PANEL / 2] = {};
    for (long u = 0; u < E::UNITS; u += 2) {
        const Word *first = words + u / E::PARTS * PANEL, *second = words + (u + 1) / E::PARTS * PANEL;
        Ints outputs[PANEL / 2]; // the 8 inputs of two outputs
        for (long half = 0; half < 2; ++half) {
            const auto low = (int32x4_t)E::part(load_words(first + half * LANES), u % E::PARTS);
            const auto high = (int32x4_t)E::part(load_words(second + half * LANES), (u + 1) % E::PARTS);
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

// out[R][PANEL] (+)= x[R] · groups of a panel. `facts` are those of the first row's first group.
template <class E, int R>
void group_tile(const Word *x, const Word *facts, long x_row, const Word *panel, long groups, float *out, long out_row, bool more,
                const Word *ahead, long step) {
    Floats left_out[R], right_out[R]; // in registers for few rows, else in the first cache
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        left_out[r] = more ? load(out + r * out_row) : Floats{};
        right_out[r] = more ? load(out + r * out_row + LANES) : Floats{};
    }
    for (long g = 0; g < groups; ++g, x += E::UNITS * E::GIVEN, facts += E::FACTS, panel += E::GROUP_WORDS) {
        RowSums<Ints, R> all_sums;
        each_row(0, [&](long r, auto &sums) { sums.left = sums.right = E::begin(facts[r * x_row + 1]); }, all_sums);
        const Word *words = panel + E::SCALES;
#ifdef __ARM_FEATURE_MATMUL_INT8
        constexpr bool SQUARES = R > 1;
        if constexpr (SQUARES) in_squares<E, R>(x, x_row, words, all_sums);
#else
        constexpr bool SQUARES = false;
#endif
        __builtin_prefetch(ahead);
        ahead += step / 2;
#pragma GCC unroll 1 // else GCC fetches all that is ahead at once, and memory is slower
        for (long u = 0; u < E::ROWS; ++u, words += PANEL, ahead += step) {
            __builtin_prefetch(ahead);
            if (PANEL * 4 > 64) __builtin_prefetch(ahead + LANES);
            if constexpr (SQUARES) continue; // the sums are there, and weights are fetched ahead as ever
#pragma GCC unroll 2 // as in `tile`: with one function for both GCC 12 makes int8 10 % slower with AVX2
            for (long k = 0; k < E::STEPS; ++k) {
                const Word *here = anew(words);
                Ints left_weights = E::part(load_words(here), k), right_weights = E::part(load_words(here + LANES), k);
                in_registers(left_weights);
                in_registers(right_weights);
                each_row(0, [&](long r, auto &sums) {
                    const Word *given = x + r * x_row + u * E::STEPS + k;
                    sums.left = E::add(sums.left, left_weights, given);
                    sums.right = E::add(sums.right, right_weights, given);
                }, all_sums);
            }
        }
        const auto *scales = reinterpret_cast<const uint16_t *>(panel);
        const Floats left_scales = load(scales), right_scales = load(scales + LANES);
        each_row(0, [&](long r, auto &sums) {
            const Word *mine = facts + r * x_row;
            left_out[r] = with_group(left_out[r], E::end(sums.left, mine[1]), left_scales, mine);
            right_out[r] = with_group(right_out[r], E::end(sums.right, mine[1]), right_scales, mine);
        }, all_sums);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        store(out + r * out_row, left_out[r]);
        store(out + r * out_row + LANES, right_out[r]);
    }
}

template <class E, int R = TILE_ROWS, class... Arguments> void group_tile_of(long rows, Arguments... arguments) {
    if (rows == R) group_tile<E, R>(arguments...);
    else if constexpr (R > 1) group_tile_of<E, R - 1>(rows, arguments...);
}

template <class E>
void group_product(const Word *x, long x_row, long rows, const Word *panel, long units, float *out, long out_row) {
    const long groups = units / E::UNITS, blocks = (rows + TILE_ROWS - 1) / TILE_ROWS;
    const long chunk = round_up(chunk_of(blocks, units), E::UNITS) / E::UNITS;
    for (long from = 0; from < groups; from += chunk) {
        const long count = std::min(chunk, groups - from), words = count * E::ROWS;
        const Word *here = panel + from * E::GROUP_WORDS, *ahead = here + (blocks == 1 ? FETCHED / E::GROUP : count) * E::GROUP_WORDS;
        for (long block = 0, row = 0; block < blocks; ++block) {
            const long height = rows / blocks + (block < rows % blocks);
            const Word *mine = x + row * x_row;
            group_tile_of<E>(height, mine + from * E::UNITS * E::GIVEN, mine + units * E::GIVEN + from * E::FACTS, x_row, here, count, out + row * out_row, out_row,
                          from > 0, ahead + block * words * PANEL / blocks, PANEL / blocks);
            row += height;
        }
    }
}
#endif

#ifdef HAS_TILES
constexpr long MOST_IN_VECTORS = 8; // up to so many rows vectors are faster than tiles, with the same sums

// out[rows][PANEL] (+)= x · GROUPS groups of a panel, for up to BLOCK rows: a group fills the height of a tile.
template <long GROUPS>
void groups_in_tiles(const Word *x, const Word *facts, long x_row, long rows, const Word *panel, float *out, long out_row, bool more) {
    static_assert(Int8::UNITS == TILE && LANES == TILE, "a group is a tile");
    alignas(64) float sums[GROUPS][BLOCK * PANEL]; // the bits of int32
    Floats scales[2][GROUPS];
    for (long g = 0; g < GROUPS; ++g, panel += Int8::GROUP_WORDS) {
        in_tiles<Int8>(x + g * TILE, x_row, rows, panel + Int8::SCALES, PANEL, TILE, sums[g], PANEL);
        for (long j = 0; j < 2; ++j) scales[j][g] = load(reinterpret_cast<const uint16_t *>(panel) + j * LANES);
    }
    __asm__ volatile("" ::: "memory"); // the compiler does not know that the registers wrote memory
    for (long r = 0; r < rows; ++r, facts += x_row, out += out_row) {
        Floats left = more ? load(out) : Floats{}, right = more ? load(out + LANES) : Floats{};
#pragma GCC unroll 4
        for (long g = 0; g < GROUPS; ++g) {
            const Word *mine = facts + g * Int8::FACTS;
            const float *group = sums[g] + r * PANEL;
            const Ints begun = all_words(mine[1]);
            left = with_group(left, reinterpret_cast<Ints>(load(group)) + begun, scales[0][g], mine);
            right = with_group(right, reinterpret_cast<Ints>(load(group + LANES)) + begun, scales[1][g], mine);
        }
        store(out, left);
        store(out + LANES, right);
    }
}

// As `group_product`, for up to BLOCK rows.
inline void groups_in_tiles(const Word *x, long x_row, long rows, const Word *panel, long units, float *out, long out_row) {
    constexpr long MOST = 4; // whose sums stay in the first cache
    const long groups = units / TILE;
    for (long g = 0; g < groups; ) {
        const Word *mine = x + g * TILE, *facts = x + units + g * Int8::FACTS, *here = panel + g * Int8::GROUP_WORDS;
        const bool whole = groups - g >= MOST;
        (whole ? groups_in_tiles<MOST> : groups_in_tiles<1>)(mine, facts, x_row, rows, here, out, out_row, g > 0);
        g += whole ? MOST : 1;
    }
}
#endif

// out[rows][PANEL] = x · a panel of a matrix.
template <class E>
void matrix_product([[maybe_unused]] bool tiles, const typename E::Given *x, long x_row, long rows, const Word *panel, long inputs, float *out, long out_row) {
    if constexpr (!E::GROUPED) product<E>(tiles, x, x_row, rows, panel, PANEL, units<E>(inputs), out, out_row);
    else
        for (long r = 0; r < rows; r += BLOCK) { // what is added up stays in the first cache
            const long count = std::min(BLOCK, rows - r);
#ifdef HAS_TILES
            if constexpr (std::is_same_v<E, Int8>)
                if (tiles && count > MOST_IN_VECTORS) {
                    groups_in_tiles(x + r * x_row, x_row, count, panel, units<E>(inputs), out + r * out_row, out_row);
                    continue;
                }
#endif
            group_product<E>(x + r * x_row, x_row, count, panel, units<E>(inputs), out + r * out_row, out_row);
        }
}

} // namespace
