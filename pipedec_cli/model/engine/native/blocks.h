#pragma once

// From the blocks of GGUF files to the integers of a panel, each number as it is.

#include "groups.h"

#ifdef HAS_INT8

namespace {

// The numbers of ggml's types that are read as they are.
enum Blocks { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14 };

inline uint16_t small_at(const uint8_t *block, long at) {
    uint16_t number;
    std::memcpy(&number, block + at, sizeof(number));
    return number;
}

// A minimum here is taken away, and a small number's highest bit is its sign.
inline uint16_t negated(uint16_t small) { return small ^ 0x8000; }

// A block of 32 numbers: 16 bytes have the lower 4 bits, first those of the first 16 numbers. `high` are their fifth bits.
inline void read_nibbles(const uint8_t *nibbles, uint32_t high, uint8_t *whole) {
    for (long i = 0; i < 16; ++i) {
        whole[i] = static_cast<uint8_t>((nibbles[i] & 15) | (high >> i & 1) << 4);
        whole[i + 16] = static_cast<uint8_t>(nibbles[i] >> 4 | (high >> (i + 16) & 1) << 4);
    }
}

inline uint32_t word_at(const uint8_t *block, long at) {
    uint32_t word;
    std::memcpy(&word, block + at, sizeof(word));
    return word;
}

// The scales and minima, of 6 bits, of a super-block's 8 blocks, which 12 bytes hold.
inline void read_six_bits(const uint8_t *bytes, Numbers &to) {
    for (long g = 0; g < 4; ++g) {
        to.scales[g] = bytes[g] & 63;
        to.minima[g] = bytes[g + 4] & 63;
        to.scales[g + 4] = static_cast<uint8_t>((bytes[g + 8] & 15) | bytes[g] >> 6 << 4);
        to.minima[g + 4] = static_cast<uint8_t>(bytes[g + 8] >> 4 | bytes[g + 4] >> 6 << 4);
    }
}

inline void read_q6_k(const uint8_t *block, Numbers &to) {
    const uint8_t *low = block, *high = block + 128;
    for (long half = 0; half < 2; ++half, low += 64, high += 32)
        for (long i = 0; i < 32; ++i) {
            uint8_t *whole = to.whole + 128 * half + i;
            whole[0] = static_cast<uint8_t>((low[i] & 15) | (high[i] & 3) << 4);
            whole[32] = static_cast<uint8_t>((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
            whole[64] = static_cast<uint8_t>(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
            whole[96] = static_cast<uint8_t>(low[i + 32] >> 4 | high[i] >> 6 << 4);
        }
    std::copy_n(block + 192, 2 * PER_SUPER, to.scales);
    to.factor = small_at(block, 208);
}

// Q4_K and Q5_K: of each 32 bytes the lower halves are a block, and the upper halves the next.
inline void read_super_lines(const uint8_t *block, bool five, Numbers &to) {
    to.factor = small_at(block, 0);
    to.least_factor = small_at(block, 2);
    read_six_bits(block + 4, to);
    const uint8_t *high = block + 16, *low = block + (five ? 48 : 16);
    for (long g = 0; g < PER_SUPER; ++g)
        for (long i = 0; i < GROUP; ++i) {
            const int nibble = low[g / 2 * GROUP + i] >> g % 2 * 4 & 15;
            to.whole[g * GROUP + i] = static_cast<uint8_t>(nibble | (five ? (high[i] >> g & 1) << 4 : 0));
        }
}

// The bytes of a block, and how many groups it has; 0 for a type that is not read.
struct BlockSize {
    long bytes, groups;
};
inline BlockSize block_size(long type) {
    switch (type) {
    case Q4_0: return {18, 1};
    case Q4_1: return {20, 1};
    case Q5_0: return {22, 1};
    case Q5_1: return {24, 1};
    case Q8_0: return {34, 1};
    case Q4_K: return {144, PER_SUPER};
    case Q5_K: return {176, PER_SUPER};
    case Q6_K: return {210, PER_SUPER};
    default: return {0, 0};
    }
}

// The kind that holds all numbers of a type exactly; −1 for a type that is not read.
inline long kind_of_blocks(long type) {
    switch (type) {
    case Q4_0: return FOUR;
    case Q4_1: return FOUR_FROM;
    case Q5_0: case Q8_0: return EIGHT;
    case Q5_1: return EIGHT_FROM;
    case Q4_K: return SUPER_FOUR;
    case Q5_K: return SUPER_FIVE;
    case Q6_K: return SUPER_SIX;
    default: return -1;
    }
}

inline void read_block(long type, const uint8_t *block, Numbers &to) {
    to.factor = small_at(block, 0);
    switch (type) {
    case Q4_0: return read_nibbles(block + 2, 0, to.whole);
    case Q4_1: to.least_factor = negated(small_at(block, 2)); return read_nibbles(block + 4, 0, to.whole);
    case Q5_0:
        read_nibbles(block + 6, word_at(block, 2), to.whole);
        for (long i = 0; i < GROUP; ++i) to.whole[i] = static_cast<uint8_t>(to.whole[i] - 16 + 128);
        return;
    case Q5_1: to.least_factor = negated(small_at(block, 2)); return read_nibbles(block + 8, word_at(block, 4), to.whole);
    case Q8_0:
        for (long i = 0; i < GROUP; ++i) to.whole[i] = static_cast<uint8_t>(block[2 + i] + 128);
        return;
    case Q4_K: return read_super_lines(block, false, to);
    case Q5_K: return read_super_lines(block, true, to);
    default: return read_q6_k(block, to);
    }
}

} // namespace
#endif
