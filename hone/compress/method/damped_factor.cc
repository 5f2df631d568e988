// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/damped_factor.h"

#include <algorithm>

#include "hone/kernels/linalg/triangular.h"

namespace hone::compress {

std::vector<double> damped_factor(const kernels::Gram& inputs, double damp, double least,
                                  Executor& executor) {
  const Index n = inputs.cols();
  double mean = 0;
  for (Index i = 0; i < n; ++i) mean += inputs(i, i) / static_cast<double>(n);
  double added = mean > 0 ? least * mean : 1;
  std::vector<double> lower(static_cast<std::size_t>(n * n));
  for (;; added *= 10) {
    std::ranges::copy(inputs.lower(), lower.begin());
    for (Index i = 0; i < n; ++i)
      lower[static_cast<std::size_t>(i * n + i)] += damp * inputs(i, i) + added;
    if (kernels::factor_cholesky(lower, n, executor)) break;
  }
  for (Index i = 0; i < n; ++i) std::fill_n(lower.begin() + i * n + i + 1, n - i - 1, 0.0);
  return lower;
}

}  // namespace hone::compress
