// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>
#include <vector>

#include "hone/core/check.h"
#include "hone/kernels/gemm/gemm.h"

namespace hone::kernels {
namespace {

double dot(const PackedMatrix& weight, Index row, const std::vector<float>& x) {
  std::vector<float> w(x.size());
  weight.unpack_row(row, w);
  double sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    sum += static_cast<double>(w[k]) * static_cast<double>(x[k]);
  }
  return sum;
}

double biased(const GemmOutput& output, Index row, const std::vector<float>& x) {
  const double sum = dot(*output.weight, row, x);
  return output.epilogue.bias == nullptr ? sum
                                         : sum + static_cast<double>(output.epilogue.bias[row]);
}

double activate(Activation activation, double v) {
  if (activation == Activation::None) return v;
  if (activation == Activation::SiluGate) return v / (1 + std::exp(-v));
  return v / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
}

}  // namespace

void gemm_ref(const PackedRows& x, const GemmOutput& output) {
  const PackedMatrix& weight = *output.weight;
  const Epilogue& epilogue = output.epilogue;
  HONE_CHECK(weight.cols() == x.cols(), "gemm_ref", concat("x of ", weight.cols(), " columns"),
             x.cols());
  std::vector<float> row(static_cast<std::size_t>(x.cols()));
  for (Index m = 0; m < x.rows(); ++m) {
    x.unpack_row(m, row);
    for (Index n = 0; n < weight.rows(); ++n) {
      double value = biased(output, n, row);
      value = activate(epilogue.activation, value);
      if (is_gated(epilogue.activation)) value *= biased(output, n + weight.rows(), row);
      if (epilogue.residual != nullptr) {
        value += static_cast<double>(epilogue.residual[m * epilogue.residual_stride + n]);
      }
      output.y[m * output.y_stride + n] = static_cast<float>(value);
    }
  }
}

}  // namespace hone::kernels
