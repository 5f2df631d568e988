// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/allocate/allocate.h"

#include <set>

#include "hone/compress/allocate/sensitivity.h"
#include "hone/compress/method/quantize_pass.h"
#include "hone/core/check.h"

namespace hone::compress {
namespace {

Index elements_of(const Model& model) {
  Index elements = 0;
  for (const model_io::NamedMatrix& tensor : model.tensors()) {
    if (!tensor.is_vector) elements += tensor.matrix.rows * tensor.matrix.cols;
  }
  return elements;
}

// The bytes of tensors that belong to no group.
Index other_bytes(const Model& model, const std::vector<MatrixGroup>& groups) {
  std::set<std::string> named;
  for (const MatrixGroup& group : groups) named.insert(group.tensors.begin(), group.tensors.end());
  Index bytes = 0;
  for (const model_io::NamedMatrix& tensor : model.tensors()) {
    if (!named.contains(tensor.name)) bytes += tensor.matrix.stored_bytes();
  }
  return bytes;
}

}  // namespace

AllocatedRecipe allocate(const Model& model, const Recipe& recipe, Context& context) {
  HONE_REQUIRE(!recipe.passes.empty(), "allocate", "The recipe has no pass.");
  HONE_REQUIRE(recipe.allocate.size_mb == 0 || recipe.allocate.bits == 0, "allocate",
               "A size and a number of bits are two budgets; give one.");
  const auto names = [&](const model_io::NamedMatrix& tensor) {
    return is_changed(recipe.passes.front(), recipe, tensor);
  };
  const std::vector<MatrixGroup> groups = measure_sensitivities(model, recipe, names, context);
  const Index others = other_bytes(model, groups);
  const double total =
      recipe.allocate.size_mb > 0
          ? recipe.allocate.size_mb * 1e6 - static_cast<double>(context.file_overhead)
          : recipe.allocate.bits / 8 * static_cast<double>(elements_of(model));
  const std::vector<FormatCost> chosen = choose_formats(groups, static_cast<Index>(total) - others);
  AllocatedRecipe out{.recipe = recipe, .groups = Json::array(), .bytes = others};
  out.recipe.allocate.size_mb = out.recipe.allocate.bits = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    out.bytes += chosen[g].bytes;
    out.predicted_kl += chosen[g].loss;
    out.groups.push_back({{"group", groups[g].name},
                          {"format", chosen[g].format},
                          {"bytes", chosen[g].bytes},
                          {"kl", chosen[g].loss}});
    for (const std::string& tensor : groups[g].tensors)
      out.recipe.passes.front().formats.push_back(concat(tensor, "=", chosen[g].format));
  }
  return out;
}

}  // namespace hone::compress
