// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/format/quant_format.h"

namespace hone::compress {

inline constexpr Index kMostSubBlocks = 16;

// How the code of a weight is decoded: value = scale * level + offset.
struct Affine {
  float scale = 0, offset = 0;
};

// The scales of one block of a row: as decoding yields them for each sub-block, and as the format
// stores them.
struct BlockScales {
  std::array<Affine, kMostSubBlocks> affine{};
  float d = 0, m = 0;  // scale and minimum, or those of the scales and minimums below
  int zero = 0;
  std::array<std::int8_t, kMostSubBlocks> scales{}, mins{};
};

// A matrix in codes that owns its bytes.
struct EncodedMatrix {
  StoredMatrix stored;  // views of the buffers below
  Buffer codes, scales, zeros;
  bool is_rounded = false;  // by a pass that quantizes, and not only stored in its former type
};

struct FitOptions {
  bool clip = true;  // whether scales are searched for; if false, the extremes are represented
  // If not 0: instead of a search, weights are clipped at this percentile of the sizes |w| of their
  // row, or of the matrix where it has one scale, and scales represent the rest.
  double percentile = 0;
};

// A stored format of weight matrices, split into the three steps of every method: scales are fitted
// to the weights of a block, weights become the nearest levels, and codes are stored. A block is a
// run of columns of one row.
class WeightFormat {
 public:
  virtual ~WeightFormat() = default;

  const std::string& name() const { return name_; }  // parse_weight_format() reads it
  // The values that codes 0, 1, … stand for before scaling, ascending.
  std::span<const float> levels() const { return levels_; }
  // Columns whose scales are fitted together, and columns that share an Affine.
  virtual Index block(Index cols) const = 0;
  virtual Index sub_block(Index cols) const { return block(cols); }
  // Whether one block of scales serves all rows; it is then fitted to all weights of the matrix.
  virtual bool spans_rows() const { return false; }
  // The format for matrices whose rows this one does not take; null if there is none.
  virtual std::shared_ptr<const WeightFormat> fallback() const { return nullptr; }
  // Whether a row may have this many columns.
  virtual bool takes(Index cols) const = 0;
  // With scales, zeros and padding.
  virtual double bits_per_weight(Index rows, Index cols) const = 0;

  // Chooses scales that minimize Σ importance (w - decoded)² for the weights of a block, which may
  // be short at the end of a row. An importance that is empty counts as 1 for all.
  virtual void fit(std::span<const float> weights, std::span<const float> importance,
                   const FitOptions& options, BlockScales& scales) const = 0;
  // Whether the stored type of scales can represent those of a block with this range.
  virtual bool holds(std::span<const float> weights) const = 0;
  // The same format with a wider type of scales; null if there is none.
  virtual std::shared_ptr<const WeightFormat> widened() const { return nullptr; }
  virtual EncodedMatrix allocate(Index rows, Index cols) const = 0;
  // Writes block `at` of a row. Different blocks may be stored by different threads.
  virtual void store(EncodedMatrix& matrix, Index row, Index at, const BlockScales& scales,
                     std::span<const std::uint8_t> codes) const = 0;

  // The code of the level that is nearest to `value`.
  std::uint8_t encode(const Affine& affine, float value) const {
    if (affine.scale == 0) return zero_code_;
    const float x = (value - affine.offset) / affine.scale;
    const auto last = static_cast<float>(levels_.size() - 1);
    if (is_uniform_) {
      const float code = std::clamp(std::nearbyint(x - levels_.front()), 0.0f, last);
      return static_cast<std::uint8_t>(code);
    }
    return nearest_of_table(x);
  }
  float decode(const Affine& affine, std::uint8_t code) const {
    return affine.scale * levels_[code] + affine.offset;
  }

 protected:
  // `levels` are ascending. `zero_code` stands for all weights of a block whose scale is 0.
  WeightFormat(std::string name, std::vector<float> levels, std::uint8_t zero_code);

 private:
  std::uint8_t nearest_of_table(float x) const;

  std::string name_;
  std::vector<float> levels_, middles_;
  bool is_uniform_ = true;  // levels have a distance of 1
  std::uint8_t zero_code_ = 0;
};

// Formats by name: "int<2-8>:<row|tensor|gN>[:sym|:asym][:f32|:f16]", "log<2-8>:…" and the
// types of GGUF that gguf_format_names() lists. Throws Error{InvalidArgument} that lists them.
std::shared_ptr<const WeightFormat> parse_weight_format(std::string_view name);
// The forms that parse_weight_format() takes, for messages and help.
std::string weight_format_forms();
std::shared_ptr<const WeightFormat> make_canonical_format(const QuantSpec& spec);
std::shared_ptr<const WeightFormat> find_gguf_format(
    std::string_view name);  // null if there is none
std::span<const std::string_view> gguf_format_names();

}  // namespace hone::compress
