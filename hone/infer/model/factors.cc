// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/model/factors.h"

#include <cmath>
#include <span>
#include <utility>

#include "hone/core/check.h"
#include "hone/kernels/sketch/sketch_op.h"

namespace hone::infer {
namespace {

using model_io::FactoredLayer;
using model_io::LayerProduct;

// Streams of a sketched layer's seed.
constexpr std::uint32_t kU1Stream = 0, kU2Stream = 1;

std::vector<float> values_of(const model_io::ModelFile& file, const std::string& name) {
  const StoredMatrix& matrix = file.tensor(name).matrix;
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
  decode(matrix, values);
  return values;
}

StoredMatrix view_of(std::span<const float> values, Index rows) {
  StoredMatrix out;
  out.rows = rows;
  out.cols = static_cast<Index>(values.size()) / rows;
  out.bytes = std::as_bytes(values);
  return out;
}

// The fixed signs of a sketched layer, times what their products are averaged with.
std::vector<float> draw_signs(const FactoredLayer& layer, std::uint32_t stream, Index cols,
                              Executor& executor) {
  std::vector<float> signs(static_cast<std::size_t>(layer.width() * cols));
  kernels::materialize({.kind = kernels::SketchKind::Rademacher,
                        .rows = layer.width(),
                        .cols = cols,
                        .seed = layer.seed,
                        .stream = stream,
                        .scaled = false},
                       0, 0, TensorView(signs.data(), Dtype::Float32, Shape{layer.width(), cols}),
                       executor);
  const auto terms = static_cast<double>(2 * layer.terms);
  const double size = 1 / std::sqrt(static_cast<double>(layer.rank) / terms) / terms;
  for (float& sign : signs) sign = static_cast<float>(sign * size);
  return signs;
}

void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// Columns [first, first + rows) of b [rank, outputs], transposed.
std::vector<float> transposed_part(const std::vector<float>& b, Index rank, Index outputs,
                                   Index first, Index rows) {
  std::vector<float> part(static_cast<std::size_t>(rows * rank));
  for (Index r = 0; r < rank; ++r) {
    for (Index i = 0; i < rows; ++i)
      part[static_cast<std::size_t>(i * rank + r)] =
          b[static_cast<std::size_t>(r * outputs + first + i)];
  }
  return part;
}

}  // namespace

Factors read_factors(const model_io::ModelFile& file, const FactoredLayer& layer,
                     const LayerProduct& product, Executor& executor) {
  Factors out;
  std::vector<float> b;
  if (layer.mode == FactoredLayer::Mode::LowRank) {
    out.a = file.tensor(layer.name + ".a").matrix;
    b = values_of(file, layer.name + ".b");
  } else {
    std::vector<float>& a = out.memory.emplace_back(values_of(file, layer.name + ".s1"));
    append(a, draw_signs(layer, kU2Stream, product.inputs, executor));
    b = draw_signs(layer, kU1Stream, product.outputs, executor);
    append(b, values_of(file, layer.name + ".s2"));
    out.a = view_of(a, layer.rank);
  }
  std::vector<float> bias;
  if (product.bias) bias = values_of(file, layer.name + ".bias");
  Index first = 0;
  out.memory.reserve(out.memory.size() + product.parts.size());
  for (const auto& [name, rows] : product.parts) {
    const std::vector<float>& part =
        out.memory.emplace_back(transposed_part(b, layer.rank, product.outputs, first, rows));
    out.b.push_back(view_of(part, rows));
    std::vector<float>& own = out.biases.emplace_back();
    if (!bias.empty()) own.assign(bias.begin() + first, bias.begin() + first + rows);
    first += rows;
  }
  return out;
}

}  // namespace hone::infer
