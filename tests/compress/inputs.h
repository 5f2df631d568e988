// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "hone/core/thread/executor.h"
#include "hone/kernels/linalg/gram.h"
#include "tests/compress/normals.h"

namespace hone::compress {

// Rows of correlated inputs with columns of very different sizes.
inline std::vector<float> correlated(Index rows, Index cols, std::uint64_t seed) {
  const std::vector<float> noise = normals(rows * cols, seed), common = normals(rows * 4, seed + 1),
                           mix = normals(4 * cols, seed + 2);
  std::vector<float> x(noise.size());
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < cols; ++c) {
      double value = 0.3 * noise[static_cast<std::size_t>(r * cols + c)];
      for (Index k = 0; k < 4; ++k)
        value += static_cast<double>(common[static_cast<std::size_t>(r * 4 + k)]) *
                 static_cast<double>(mix[static_cast<std::size_t>(k * cols + c)]);
      x[static_cast<std::size_t>(r * cols + c)] = static_cast<float>(value * (c % 17 == 0 ? 8 : 1));
    }
  }
  return x;
}

inline kernels::Gram gram_of(const std::vector<float>& x, Index cols) {
  kernels::Gram gram(cols);
  gram.add(x.data(), std::ssize(x) / cols, cols, serial_executor());
  return gram;
}

// H + damping I, as a whole matrix.
inline std::vector<double> damped(const kernels::Gram& gram, double damping) {
  const Index n = gram.cols();
  std::vector<double> out;
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) out.push_back(gram(i, j) + (i == j ? damping : 0));
  return out;
}

// The inverse of a positive definite matrix [n, n] by the method of Gauss and Jordan.
inline std::vector<double> inverse_of(std::vector<double> h, Index n) {
  std::vector<double> inverse(h.size());
  const auto at = [n](Index i, Index j) { return static_cast<std::size_t>(i * n + j); };
  for (Index i = 0; i < n; ++i) inverse[at(i, i)] = 1;
  for (Index p = 0; p < n; ++p) {
    const double pivot = h[at(p, p)];
    for (Index j = 0; j < n; ++j) h[at(p, j)] /= pivot, inverse[at(p, j)] /= pivot;
    for (Index i = 0; i < n; ++i) {
      const double factor = h[at(i, p)];
      if (i == p) continue;
      for (Index j = 0; j < n; ++j) {
        h[at(i, j)] -= factor * h[at(p, j)];
        inverse[at(i, j)] -= factor * inverse[at(p, j)];
      }
    }
  }
  return inverse;
}

}  // namespace hone::compress
