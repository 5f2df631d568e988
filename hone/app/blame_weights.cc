// SPDX-License-Identifier: Apache-2.0
#include "hone/app/blame_weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/core/progress.h"
#include "hone/model_io/model_file.h"

namespace hone::app {
namespace {

void check_tensor(const model_io::NamedMatrix& tensor, const std::filesystem::path& model) {
  std::vector<float> row(static_cast<std::size_t>(tensor.matrix.cols));
  for (Index at = 0; at < tensor.matrix.rows; ++at) {
    decode_row(tensor.matrix, at, row);
    const auto bad =
        std::ranges::find_if_not(row, [](float value) { return std::isfinite(value); });
    if (bad == row.end()) continue;
    fail_corrupt(model.string(), concat("finite weights in ", quote_name(tensor.name)),
                 concat(*bad, " at row ", at, ", column ", bad - row.begin()));
  }
}

void check_weights(const std::filesystem::path& path) {
  const auto model =
      model_io::open_model_or_throw(path, {.tokenizer = {}, .need_tokenizer = false});
  Progress progress("looking for the cause", std::ssize(model->tensors()), "tensors");
  Index checked = 0;
  for (const model_io::NamedMatrix& tensor : model->tensors()) {
    check_tensor(tensor, path);
    progress.update(++checked);
  }
  model->check_intact();
}

}  // namespace

void blame_weights(std::span<const std::filesystem::path> models, FunctionRef<void()> work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.category() == ErrorCategory::Cancelled) throw;
    for (const std::filesystem::path& model : models) {
      if (!model.empty()) check_weights(model);
    }
    throw;
  }
}

}  // namespace hone::app
