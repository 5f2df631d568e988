// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/allocate/allocate.h"

#include <algorithm>
#include <set>
#include <variant>

#include "hone/compress/allocate/sensitivity.h"
#include "hone/compress/method/quantize_pass.h"
#include "hone/compress/method/round.h"
#include "hone/core/check.h"
#include "hone/core/text_format.h"

namespace hone::compress {
namespace {

// What the tensors of the groups hold, and the bytes of all others.
struct Totals {
  Index elements = 0, other_bytes = 0;
};

Totals totals_of(const Model& model, const std::vector<MatrixGroup>& groups) {
  std::set<std::string> named;
  for (const MatrixGroup& group : groups) named.insert(group.tensors.begin(), group.tensors.end());
  Totals totals;
  for (const model_io::NamedMatrix& tensor : model.tensors()) {
    if (named.contains(tensor.name)) {
      totals.elements += tensor.matrix.rows * tensor.matrix.cols;
    } else {
      totals.other_bytes += tensor.matrix.stored_bytes();
    }
  }
  return totals;
}

// The least bytes of a matrix in one of these formats.
Index least_bytes(const StoredMatrix& matrix, const std::vector<std::string>& formats) {
  Index least = matrix.stored_bytes();
  for (const std::string& name : formats) {
    const auto format = shrinking_format(matrix, name);
    if (format != nullptr) least = std::min(least, bytes_in(*format, matrix));
  }
  return least;
}

}  // namespace

void check_budget(const Model& model, const Recipe& recipe, Index file_overhead) {
  const auto* const pass = std::get_if<QuantizePass>(&recipe.passes.front());
  if (!recipe.allocate.is_wanted() || pass == nullptr) return;
  Index least = 0, others = file_overhead, elements = 0;
  for (const model_io::NamedMatrix& tensor : model.tensors()) {
    if (!is_changed(*pass, recipe, tensor)) {
      others += tensor.matrix.stored_bytes();
      continue;
    }
    least += least_bytes(tensor.matrix, recipe.allocate.formats);
    elements += tensor.matrix.rows * tensor.matrix.cols;
  }
  const auto bytes = [](double count) { return format_bytes(static_cast<Index>(count)); };
  const double size = recipe.allocate.size_mb * 1e6;
  HONE_CHECK(size == 0 || size >= static_cast<double>(least + others), "size",
             concat("at least ", format_bytes(least + others), ", which the smallest formats take"),
             bytes(size));
  const double bits = 8.0 * static_cast<double>(least) / static_cast<double>(elements);
  HONE_CHECK(recipe.allocate.bits == 0 || elements == 0 || recipe.allocate.bits >= bits, "bits",
             concat("at least ", fixed(bits, 2), ", which the smallest formats take"),
             recipe.allocate.bits);
}

AllocatedRecipe allocate(const Model& model, const Recipe& recipe, Context& context) {
  AllocatedRecipe out{.recipe = recipe, .groups = Json::array()};
  QuantizePass* const pass = first_quantization(out.recipe);
  HONE_REQUIRE(pass != nullptr, "allocate", "The recipe has no pass that quantizes.");
  HONE_REQUIRE(recipe.allocate.size_mb == 0 || recipe.allocate.bits == 0, "allocate",
               "A size and a number of bits are two budgets; give one.");
  const auto names = [&](const model_io::NamedMatrix& tensor) {
    return is_changed(*pass, recipe, tensor);
  };
  const std::vector<MatrixGroup> groups = measure_sensitivities(model, recipe, names, context);
  const Totals totals = totals_of(model, groups);
  const double budget = recipe.allocate.size_mb > 0
                            ? recipe.allocate.size_mb * 1e6 -
                                  static_cast<double>(context.file_overhead + totals.other_bytes)
                            : recipe.allocate.bits / 8 * static_cast<double>(totals.elements);
  const std::vector<FormatCost> chosen = choose_formats(groups, static_cast<Index>(budget));
  out.bytes = totals.other_bytes;
  out.recipe.allocate.size_mb = out.recipe.allocate.bits = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    out.bytes += chosen[g].bytes;
    out.predicted_kl += chosen[g].loss;
    out.groups.push_back({{"group", groups[g].name},
                          {"format", chosen[g].format},
                          {"bytes", chosen[g].bytes},
                          {"kl", chosen[g].loss}});
    for (const std::string& tensor : groups[g].tensors)
      pass->formats.push_back(concat(tensor, "=", chosen[g].format));
  }
  return out;
}

}  // namespace hone::compress
