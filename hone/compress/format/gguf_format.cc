// SPDX-License-Identifier: Apache-2.0
// The block formats of GGUF, stored as unpack_gguf_block() reads them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "hone/compress/format/scale_search.h"
#include "hone/compress/format/weight_format.h"
#include "hone/core/bf16.h"
#include "hone/core/check.h"

namespace hone::compress {
namespace {

constexpr float kF16Max = 65504;

std::vector<float> integers(int low, int high) {
  std::vector<float> levels;
  for (int level = low; level <= high; ++level) levels.push_back(static_cast<float>(level));
  return levels;
}

void put_f16(float value, std::byte* to) {
  const std::uint16_t bits = float_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

std::byte byte_of(int value) { return static_cast<std::byte>(value & 0xff); }

// Byte j has element j in its low half and element j + 16 in its high half.
void put_nibbles(std::span<const std::uint8_t> codes, std::byte* to) {
  for (std::size_t j = 0; j < 16; ++j) to[j] = byte_of((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

// Bit j is the fifth bit of element j.
void put_fifth_bits(std::span<const std::uint8_t> codes, std::byte* to) {
  std::uint32_t bits = 0;
  for (std::size_t j = 0; j < 32; ++j) bits |= static_cast<std::uint32_t>(codes[j] >> 4 & 1) << j;
  std::memcpy(to, &bits, sizeof bits);
}

// What the formats have in common: blocks of a fixed size, one after the other.
class GgufFormat : public WeightFormat {
 public:
  GgufFormat(GgufType type, std::string name, std::vector<float> levels, std::uint8_t zero_code)
      : WeightFormat(std::move(name), std::move(levels), zero_code),
        type_(type),
        info_(gguf_type_info(static_cast<std::uint32_t>(type), "compress")) {}

  Index block(Index) const override { return info_.block; }
  bool takes(Index cols) const override { return cols % info_.block == 0; }
  // As llama.cpp chooses for rows that are no multiple of a super-block.
  std::shared_ptr<const WeightFormat> fallback() const override {
    switch (type_) {
      case GgufType::Q3_K:
        return find_gguf_format("iq4_nl");
      case GgufType::Q4_K:
        return find_gguf_format("q5_0");
      case GgufType::Q5_K:
        return find_gguf_format("q5_1");
      case GgufType::Q6_K:
        return find_gguf_format("q8_0");
      default:
        return nullptr;
    }
  }
  double bits_per_weight(Index, Index) const override {
    return 8.0 * static_cast<double>(info_.bytes) / static_cast<double>(info_.block);
  }
  bool holds(std::span<const float> weights) const override {
    const auto [low, high] = std::ranges::minmax(weights);
    return std::max(-low, high) <= kF16Max;
  }
  EncodedMatrix allocate(Index rows, Index cols) const override {
    EncodedMatrix out;
    out.codes = Buffer(rows * (cols / info_.block) * info_.bytes);
    out.stored.layout = WeightLayout::GgufBlocks;
    out.stored.rows = rows;
    out.stored.cols = cols;
    out.stored.block_type = type_;
    out.stored.bytes = out.codes.span();
    return out;
  }
  void store(EncodedMatrix& matrix, Index row, Index at, const BlockScales& scales,
             std::span<const std::uint8_t> codes) const override {
    const Index blocks = matrix.stored.cols / info_.block;
    put(scales, codes, matrix.codes.data() + (row * blocks + at) * info_.bytes);
  }

 protected:
  virtual void put(const BlockScales& scales, std::span<const std::uint8_t> codes,
                   std::byte* to) const = 0;

 private:
  GgufType type_;
  const GgufTypeInfo& info_;
};

// The scales that represent the extremes map the largest weight to the lowest code. Somewhat larger
// ones use the other end of the range, too.
SearchRange search_range(const FitOptions& options, int levels) {
  if (!options.clip) return {.steps = 0};
  return levels > 32 ? SearchRange{1.02f, 0.95f, 8} : SearchRange{1.2f, 0.5f, 29};
}

// Blocks of 32 with one scale and codes around 0: Q8_0, Q5_0, Q4_0 and IQ4_NL.
class ScaleFormat final : public GgufFormat {
 public:
  ScaleFormat(GgufType type, std::string name, std::vector<float> levels)
      : GgufFormat(type, std::move(name), levels, zero_of(levels)), type_(type) {}

  void fit(std::span<const float> weights, std::span<const float> importance,
           const FitOptions& options, BlockScales& scales) const override {
    const auto count = static_cast<int>(levels().size());
    const SearchRange range = search_range(options, count);
    scales.d = type_ == GgufType::IQ4_NL
                   ? search_table(weights, importance, *this, round_to_f16, range)
                   : search_scale(weights, importance, static_cast<int>(levels().front()),
                                  static_cast<int>(levels().back()), true, round_to_f16, range);
    scales.affine[0] = {scales.d, 0};
  }

 private:
  static std::uint8_t zero_of(const std::vector<float>& levels) {
    const auto nearest = std::ranges::min_element(levels, {}, [](float x) { return std::abs(x); });
    return static_cast<std::uint8_t>(nearest - levels.begin());
  }

  void put(const BlockScales& scales, std::span<const std::uint8_t> codes,
           std::byte* to) const override {
    put_f16(scales.d, to);
    to += 2;
    if (type_ == GgufType::Q8_0) {
      for (std::size_t j = 0; j < codes.size(); ++j) to[j] = byte_of(codes[j] - 127);
      return;
    }
    if (type_ == GgufType::Q5_0) {
      put_fifth_bits(codes, to);
      to += 4;
    }
    put_nibbles(codes, to);
  }

  GgufType type_;
};

// Blocks of 32 with a scale and a minimum: Q4_1 and Q5_1.
class MinimumFormat final : public GgufFormat {
 public:
  MinimumFormat(GgufType type, std::string name, int high)
      : GgufFormat(type, std::move(name), integers(0, high), 0), high_(high) {}

  void fit(std::span<const float> weights, std::span<const float> importance,
           const FitOptions& options, BlockScales& scales) const override {
    const SearchRange range{1, 0.6f, options.clip ? 21 : 0};
    scales.affine[0] = search_affine(weights, importance, high_, false, round_to_f16, range);
    scales.d = scales.affine[0].scale;
    scales.m = scales.affine[0].offset;
  }

 private:
  void put(const BlockScales& scales, std::span<const std::uint8_t> codes,
           std::byte* to) const override {
    put_f16(scales.d, to);
    put_f16(scales.m, to + 2);
    to += 4;
    if (high_ > 15) {
      put_fifth_bits(codes, to);
      to += 4;
    }
    put_nibbles(codes, to);
  }

  int high_;
};

std::span<const float> part_of(std::span<const float> values, std::size_t at, std::size_t size) {
  return values.empty() ? values : values.subspan(at * size, size);
}

// Super-blocks of 8 sub-blocks of 32, each with a scale and a minimum of 6 bits: Q4_K and Q5_K.
class MinimumSuperFormat final : public GgufFormat {
 public:
  MinimumSuperFormat(GgufType type, std::string name, int high)
      : GgufFormat(type, std::move(name), integers(0, high), 0), high_(high) {}

  Index sub_block(Index) const override { return kSize; }
  void fit(std::span<const float> weights, std::span<const float> importance,
           const FitOptions& options, BlockScales& scales) const override {
    const SearchRange range{1, 0.6f, options.clip ? 21 : 0};
    float most_scale = 0, most_minimum = 0;
    for (std::size_t s = 0; s < kSubs; ++s) {
      Affine& affine = scales.affine[s];
      affine = search_affine(part_of(weights, s, kSize), part_of(importance, s, kSize), high_, true,
                             keep_scale, range);
      most_scale = std::max(most_scale, affine.scale);
      most_minimum = std::max(most_minimum, -affine.offset);
    }
    scales.d = round_to_f16(most_scale / kMost);
    scales.m = round_to_f16(most_minimum / kMost);
    const auto code_of = [](float value, float unit) {
      return static_cast<std::int8_t>(
          unit > 0 ? std::clamp(std::nearbyint(value / unit), 0.0f, kMost) : 0);
    };
    for (std::size_t s = 0; s < kSubs; ++s) {
      Affine& affine = scales.affine[s];
      scales.scales[s] = code_of(affine.scale, scales.d);
      scales.mins[s] = code_of(-affine.offset, scales.m);
      affine = {scales.d * static_cast<float>(scales.scales[s]),
                -scales.m * static_cast<float>(scales.mins[s])};
    }
  }

 private:
  static constexpr std::size_t kSubs = 8, kSize = 32;
  static constexpr float kMost = 63;

  void put(const BlockScales& scales, std::span<const std::uint8_t> codes,
           std::byte* to) const override {
    put_f16(scales.d, to);
    put_f16(scales.m, to + 2);
    std::array<int, 12> packed{};
    for (std::size_t j = 0; j < kSubs; ++j) {
      const int scale = scales.scales[j], minimum = scales.mins[j];
      if (j < 4) {
        packed[j] |= scale;
        packed[j + 4] |= minimum;
      } else {
        packed[j + 4] |= (scale & 15) | (minimum & 15) << 4;
        packed[j - 4] |= scale >> 4 << 6;
        packed[j] |= minimum >> 4 << 6;
      }
    }
    to += 4;
    for (const int value : packed) *to++ = byte_of(value);
    if (high_ > 15) {
      for (std::size_t l = 0; l < kSize; ++l) {
        int bits = 0;
        for (std::size_t s = 0; s < kSubs; ++s) bits |= (codes[s * kSize + l] >> 4 & 1) << s;
        *to++ = byte_of(bits);
      }
    }
    for (std::size_t g = 0; g < kSubs; g += 2) {
      for (std::size_t l = 0; l < kSize; ++l)
        *to++ = byte_of((codes[g * kSize + l] & 15) | (codes[(g + 1) * kSize + l] & 15) << 4);
    }
  }

  int high_;
};

// Super-blocks of 16 sub-blocks of 16, each with a signed scale: Q6_K and Q3_K.
class ScaleSuperFormat final : public GgufFormat {
 public:
  ScaleSuperFormat(GgufType type, std::string name, int half, int scale_half)
      : GgufFormat(type, std::move(name), integers(-half, half - 1),
                   static_cast<std::uint8_t>(half)),
        half_(half),
        scale_half_(scale_half) {}

  Index sub_block(Index) const override { return kSize; }
  void fit(std::span<const float> weights, std::span<const float> importance,
           const FitOptions& options, BlockScales& scales) const override {
    const SearchRange range = search_range(options, 2 * half_);
    std::array<float, kSubs> wanted;
    float most = 0;
    for (std::size_t s = 0; s < kSubs; ++s) {
      wanted[s] = search_scale(part_of(weights, s, kSize), part_of(importance, s, kSize), -half_,
                               half_ - 1, true, keep_scale, range);
      if (std::abs(wanted[s]) > std::abs(most)) most = wanted[s];
    }
    const auto lowest = static_cast<float>(-scale_half_);
    scales.d = round_to_f16(most / lowest);
    for (std::size_t s = 0; s < kSubs; ++s) {
      const float code =
          scales.d == 0 ? 0 : std::clamp(std::nearbyint(wanted[s] / scales.d), lowest, -lowest - 1);
      scales.scales[s] = static_cast<std::int8_t>(code);
      scales.affine[s] = {scales.d * code, 0};
    }
  }

 private:
  static constexpr std::size_t kSubs = 16, kSize = 16;

  void put(const BlockScales& scales, std::span<const std::uint8_t> codes,
           std::byte* to) const override {
    if (half_ == 32) return put_six_bits(scales, codes, to);
    put_three_bits(scales, codes, to);
  }

  // low[128] nibbles, high[64] pairs of bits, scales[16], d
  static void put_six_bits(const BlockScales& scales, std::span<const std::uint8_t> codes,
                           std::byte* to) {
    std::fill_n(to, 192, std::byte{0});
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::size_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
      to[half * 64 + quarter % 2 * 32 + l] |= byte_of((codes[i] & 15) << (quarter < 2 ? 0 : 4));
      to[128 + half * 32 + l] |= byte_of(codes[i] >> 4 << (2 * quarter));
    }
    for (std::size_t s = 0; s < kSubs; ++s) to[192 + s] = byte_of(scales.scales[s]);
    put_f16(scales.d, to + 208);
  }

  // third[32] bits, low[64] pairs of bits, scales[12] of 6 bits, d
  static void put_three_bits(const BlockScales& scales, std::span<const std::uint8_t> codes,
                             std::byte* to) {
    std::fill_n(to, 108, std::byte{0});
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::size_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
      to[l] |= byte_of(codes[i] >> 2 << (half * 4 + quarter));
      to[32 + half * 32 + l] |= byte_of((codes[i] & 3) << (2 * quarter));
    }
    for (std::size_t s = 0; s < kSubs; ++s) {
      const int code = scales.scales[s] + 32;
      to[96 + s % 8] |= byte_of((code & 15) << (s < 8 ? 0 : 4));
      to[104 + s % 4] |= byte_of(code >> 4 << (2 * (s / 4)));
    }
    put_f16(scales.d, to + 108);
  }

  int half_, scale_half_;
};

std::vector<float> iq4_levels() { return {kIq4Levels.begin(), kIq4Levels.end()}; }

// By rising size.
const std::vector<std::shared_ptr<const WeightFormat>>& gguf_formats() {
  static const std::vector<std::shared_ptr<const WeightFormat>> kFormats{
      std::make_shared<ScaleSuperFormat>(GgufType::Q3_K, "q3_k", 4, 32),
      std::make_shared<ScaleFormat>(GgufType::IQ4_NL, "iq4_nl", iq4_levels()),
      std::make_shared<ScaleFormat>(GgufType::Q4_0, "q4_0", integers(-8, 7)),
      std::make_shared<MinimumSuperFormat>(GgufType::Q4_K, "q4_k", 15),
      std::make_shared<MinimumFormat>(GgufType::Q4_1, "q4_1", 15),
      std::make_shared<ScaleFormat>(GgufType::Q5_0, "q5_0", integers(-16, 15)),
      std::make_shared<MinimumSuperFormat>(GgufType::Q5_K, "q5_k", 31),
      std::make_shared<MinimumFormat>(GgufType::Q5_1, "q5_1", 31),
      std::make_shared<ScaleSuperFormat>(GgufType::Q6_K, "q6_k", 32, 128),
      std::make_shared<ScaleFormat>(GgufType::Q8_0, "q8_0", integers(-127, 127))};
  return kFormats;
}

}  // namespace

std::shared_ptr<const WeightFormat> find_gguf_format(std::string_view name) {
  const auto& formats = gguf_formats();
  const auto found =
      std::ranges::find_if(formats, [&](const auto& format) { return format->name() == name; });
  return found != formats.end() ? *found : nullptr;
}

std::span<const std::string_view> gguf_format_names() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names;
    for (const auto& format : gguf_formats()) names.emplace_back(format->name());
    return names;
  }();
  return kNames;
}

}  // namespace hone::compress
