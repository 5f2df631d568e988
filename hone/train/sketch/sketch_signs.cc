// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/sketch_signs.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string_view>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/kernels/sketch/sketch_op.h"
#include "hone/train/interop.h"

namespace hone::nn {
namespace {

using torch::Tensor;

Tensor bit_values() { return at::arange(8, at::kByte); }

}  // namespace

Tensor SketchRecipe::to_bytes() const {
  const Tensor bytes = at::empty({kBytes}, at::kByte);
  auto* out = bytes.data_ptr<std::uint8_t>();
  const std::uint64_t sizes =
      static_cast<std::uint64_t>(terms) | static_cast<std::uint64_t>(low_rank) << 32;
  for (int i = 0; i < 8; ++i) {
    out[i] = static_cast<std::uint8_t>(seed >> (8 * i));
    out[8 + i] = static_cast<std::uint8_t>(sizes >> (8 * i));
  }
  return bytes;
}

SketchRecipe SketchRecipe::from_bytes(const Tensor& bytes) {
  constexpr std::string_view kOp = "SketchRecipe";
  HONE_CHECK(bytes.numel() == kBytes, kOp, "16 bytes", bytes.numel());
  const Tensor values = bytes.detach().to(at::kCPU, at::kDouble).contiguous();
  std::uint64_t words[2] = {0, 0};
  for (Index i = 0; i < kBytes; ++i) {
    const double value = values.data_ptr<double>()[i];
    HONE_CHECK(value >= 0 && value <= 255 && value == std::floor(value), kOp, "numbers of 0 to 255",
               value);
    words[i / 8] |= static_cast<std::uint64_t>(value) << (8 * (i % 8));
  }
  const auto terms = static_cast<Index>(words[1] & 0xffffffffu);
  const auto low_rank = static_cast<Index>(words[1] >> 32);
  HONE_CHECK(terms >= 1 && low_rank >= 1 && terms <= kernels::kMaxSketchSize / low_rank, kOp,
             "terms * low_rank in [1, 2^30]", concat(terms, " * ", low_rank));
  return {words[0], terms, low_rank};
}

Tensor draw_signs(const SignBlock& block, double magnitude, const torch::TensorOptions& options) {
  const Tensor signs = at::empty({block.rows, block.cols}, at::kFloat);
  kernels::materialize({.kind = kernels::SketchKind::Rademacher,
                        .rows = block.rows,
                        .cols = block.cols,
                        .seed = block.seed,
                        .stream = block.stream,
                        .scaled = false},
                       0, 0, view_of(signs, "signs"), libtorch_executor());
  return signs.to(options).mul_(magnitude);
}

Tensor pack_signs(const Tensor& signs) {
  const Tensor negative = signs.detach().to(at::kCPU).reshape({-1}).lt(0).to(at::kByte);
  const Index padding = (8 - negative.numel() % 8) % 8;
  const Tensor rows = at::constant_pad_nd(negative, {0, padding}).view({-1, 8});
  return at::bitwise_left_shift(rows, bit_values()).sum(1, false, at::kByte);
}

Tensor unpack_signs(const Tensor& bits, Index count) {
  HONE_CHECK(bits.dim() == 1 && bits.numel() == (count + 7) / 8, "unpack_signs",
             concat((count + 7) / 8, " bytes"), bits.numel());
  const Tensor bytes = bits.detach().to(at::kCPU, at::kByte).unsqueeze(1);
  const Tensor negative = at::bitwise_right_shift(bytes, bit_values()).bitwise_and(1);
  return 1 - 2 * negative.reshape({-1}).narrow(0, 0, count).to(at::kFloat);
}

Tensor draw_uniform(at::IntArrayRef sizes, double bound, std::uint64_t seed, std::uint64_t stream) {
  PhiloxStream random(seed, stream);
  const Tensor out = at::empty(sizes, at::kFloat);
  auto* data = out.data_ptr<float>();
  for (Index i = 0; i < out.numel(); ++i) {
    data[i] = static_cast<float>(bound * (2 * random.uniform() - 1));
  }
  return out;
}

void restore_bytes(Tensor& buffer) {
  if (buffer.defined() && buffer.scalar_type() != at::kByte) buffer.set_data(buffer.to(at::kByte));
}

}  // namespace hone::nn
