// SPDX-License-Identifier: Apache-2.0
// The layouts of ggml's blocks with minimums, fifth bits and sub-blocks, as its functions
// dequantize_row_* read them.
#include <array>
#include <cstring>

#include "hone/core/check.h"
#include "hone/core/format/quant_format.h"

namespace hone {
namespace {

constexpr std::uint16_t kSignOfHalf = 0x8000;

int byte_at(const std::byte* from, std::size_t at) { return std::to_integer<int>(from[at]); }

std::uint16_t half_at(const std::byte* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

// Q4_1: d, m, 16 bytes of nibbles; byte j holds elements j (low) and j + 16. Q5_0 and Q5_1 have
// four bytes before the nibbles: bit j is the fifth bit of element j.
void unpack_short(const std::byte* from, bool minimum, bool fifth, GgufBlock& out) {
  out.d = half_at(from);
  out.m = minimum ? half_at(from + 2) ^ kSignOfHalf : 0;
  from += minimum ? 4 : 2;
  std::uint32_t high = 0;
  if (fifth) {
    std::memcpy(&high, from, sizeof high);
    from += sizeof high;
  }
  const int zero = minimum ? 0 : 16;
  for (std::size_t j = 0; j < 32; ++j) {
    const int pair = byte_at(from, j % 16);
    const int code = (j < 16 ? pair & 15 : pair >> 4) | static_cast<int>(high >> j & 1) << 4;
    out.codes[j] = static_cast<std::int8_t>(code - zero);
  }
  out.scales[0] = out.scales[1] = 1;
  out.mins[0] = out.mins[1] = minimum ? 1 : 0;
}

// Twelve bytes with a scale and a minimum of 6 bits for each of eight sub-blocks. Bytes 0 to 3 have
// the scales and 4 to 7 the minimums of the first four; their two top bits belong to the last four,
// whose low four bits are in bytes 8 to 11.
void unpack_six_bit_scales(const std::byte* from, GgufBlock& out) {
  for (std::size_t j = 0; j < 8; ++j) {
    int scale = byte_at(from, j % 4) & 63, minimum = byte_at(from, j % 4 + 4) & 63;
    if (j >= 4) {
      scale = (byte_at(from, j + 4) & 15) | byte_at(from, j - 4) >> 6 << 4;
      minimum = byte_at(from, j + 4) >> 4 | byte_at(from, j) >> 6 << 4;
    }
    out.scales[2 * j] = out.scales[2 * j + 1] = static_cast<std::int8_t>(scale);
    out.mins[2 * j] = out.mins[2 * j + 1] = static_cast<std::int8_t>(minimum);
  }
}

// d, m, scales[12], in Q5_K 32 bytes of fifth bits, then 128 bytes of nibbles. Byte l of the g-th
// 32 nibble bytes holds elements 64 g + l (low) and 64 g + 32 + l; bit s of fifth[l] belongs to
// element l of sub-block s.
void unpack_q4_k(const std::byte* from, bool fifth, GgufBlock& out) {
  out.d = half_at(from);
  out.m = half_at(from + 2);
  unpack_six_bit_scales(from + 4, out);
  const std::byte* high = from + 16;
  const std::byte* nibbles = fifth ? high + 32 : high;
  for (std::size_t i = 0; i < kSuperBlock; ++i) {
    const std::size_t sub = i / 32, l = i % 32;
    const int pair = byte_at(nibbles, sub / 2 * 32 + l);
    int code = sub % 2 == 0 ? pair & 15 : pair >> 4;
    if (fifth) code |= (byte_at(high, l) >> sub & 1) << 4;
    out.codes[i] = static_cast<std::int8_t>(code);
  }
}

// low[128] nibbles, high[64] pairs of bits, 16 signed scales, d. In each half of 128 elements,
// quarter t of 32 has its nibbles in bytes 32 (t % 2) + l, low for t < 2, and bits 2 t and 2 t + 1
// of high[l].
void unpack_q6_k(const std::byte* from, GgufBlock& out) {
  const std::byte *high = from + 128, *scales = from + 192;
  for (std::size_t i = 0; i < kSuperBlock; ++i) {
    const std::size_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const int pair = byte_at(from, half * 64 + quarter % 2 * 32 + l);
    const int top = byte_at(high, half * 32 + l) >> (2 * quarter) & 3;
    out.codes[i] =
        static_cast<std::int8_t>(((quarter < 2 ? pair & 15 : pair >> 4) | top << 4) - 32);
  }
  std::memcpy(out.scales.data(), scales, out.scales.size());
  out.mins.fill(0);
  out.d = half_at(from + 208);
  out.m = 0;
}

// d, 16 bytes of nibbles, which index kIq4Levels.
void unpack_iq4_nl(const std::byte* from, GgufBlock& out) {
  out.d = half_at(from);
  out.m = 0;
  for (std::size_t j = 0; j < 32; ++j) {
    const int pair = byte_at(from + 2, j % 16);
    out.codes[j] = kIq4Levels[static_cast<std::size_t>(j < 16 ? pair & 15 : pair >> 4)];
  }
  out.scales[0] = out.scales[1] = 1;
  out.mins[0] = out.mins[1] = 0;
}

// third[32] bits, low[64] pairs of bits, 12 bytes with 16 scales of 6 bits, d. In each half of 128
// elements, quarter t of 32 has bits 2 t and 2 t + 1 of low[l] and, from half h, bit 4 h + t of
// third[l], without which 4 is subtracted. Bytes 0 to 7 of the scales hold their low halves, the
// last four bytes their upper bits.
void unpack_q3_k(const std::byte* from, GgufBlock& out) {
  const std::byte *low = from + 32, *scales = from + 96;
  for (std::size_t i = 0; i < kSuperBlock; ++i) {
    const std::size_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const int pair = byte_at(low, half * 32 + l) >> (2 * quarter) & 3;
    const int third = byte_at(from, l) >> (4 * half + quarter) & 1;
    out.codes[i] = static_cast<std::int8_t>((pair | third << 2) - 4);
  }
  for (std::size_t s = 0; s < 16; ++s) {
    const int nibble = byte_at(scales, s % 8) >> (s < 8 ? 0 : 4) & 15;
    const int upper = byte_at(scales, 8 + s % 4) >> (2 * (s / 4)) & 3;
    out.scales[s] = static_cast<std::int8_t>((nibble | upper << 4) - 32);
  }
  out.mins.fill(0);
  out.d = half_at(from + 108);
  out.m = 0;
}

}  // namespace

void unpack_gguf_block(GgufType type, const std::byte* from, GgufBlock& out) {
  switch (type) {
    case GgufType::Q4_1:
      return unpack_short(from, true, false, out);
    case GgufType::Q5_0:
      return unpack_short(from, false, true, out);
    case GgufType::Q5_1:
      return unpack_short(from, true, true, out);
    case GgufType::IQ4_NL:
      return unpack_iq4_nl(from, out);
    case GgufType::Q3_K:
      return unpack_q3_k(from, out);
    case GgufType::Q4_K:
      return unpack_q4_k(from, false, out);
    case GgufType::Q5_K:
      return unpack_q4_k(from, true, out);
    case GgufType::Q6_K:
      return unpack_q6_k(from, out);
    default:
      fail_unsupported("unpack_gguf_block", "Q4_1, Q5_0, Q5_1, IQ4_NL, Q3_K, Q4_K, Q5_K or Q6_K",
                       gguf_type_info(static_cast<std::uint32_t>(type), "a block").name);
  }
}

}  // namespace hone
