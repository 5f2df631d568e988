// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/family/file_tensors.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "hone/core/check.h"

namespace hone::model_io {
namespace {

constexpr std::string_view kLayers = "model.layers.", kGgufLayers = "blk.";

// A row of the table and where it occurs: in a layer, or outside of layers (-1).
struct Place {
  const TensorRow* row = nullptr;
  Index layer = -1;
};

std::string own_name(const Place& at, std::string_view part, std::string_view suffix) {
  return at.layer < 0 ? concat(part, suffix) : concat(kLayers, at.layer, ".", part, suffix);
}

std::string file_name(const Family& family, FileFormat format, const Place& at,
                      std::string_view suffix) {
  const bool gguf = format == FileFormat::Gguf;
  const std::string_view stem = gguf ? at.row->gguf : at.row->hugging_face;
  if (at.layer < 0) return concat(stem, suffix);
  return concat(gguf ? kGgufLayers : family.layer_prefix, at.layer, ".", stem, suffix);
}

std::vector<Place> places_of(const Family& family, Index layers) {
  std::vector<Place> places;
  for (const TensorRow& row : family.whole) places.push_back({&row, -1});
  for (Index layer = 0; layer < layers; ++layer) {
    for (const TensorRow& row : family.layer) places.push_back({&row, layer});
  }
  return places;
}

void add_part(FileTensor& tensor, PlannedTensor part) {
  const bool stacked = !tensor.parts.empty();
  tensor.is_vector = part.is_vector;
  if (part.is_vector) {
    tensor.rows = 1;
    tensor.cols = (stacked ? tensor.cols : 0) + part.cols;
  } else {
    tensor.rows += part.rows;
    tensor.cols = part.cols;
  }
  tensor.parts.push_back(std::move(part));
}

}  // namespace

std::string shape_text(Index rows, Index cols, bool is_vector) {
  return is_vector ? concat("[", cols, "]") : concat("[", rows, ", ", cols, "]");
}

std::vector<FileTensor> file_tensors(const Architecture& a, FileFormat format) {
  std::vector<PlannedTensor> plan = plan_tensors(a);
  std::vector<FileTensor> out;
  if (!a.factored.empty()) {
    for (PlannedTensor& planned : plan) {
      FileTensor tensor{.name = planned.name};
      add_part(tensor, std::move(planned));
      out.push_back(std::move(tensor));
    }
    return out;
  }
  const Family& family = family_of(a);
  // The place of a planned tensor that begins a tensor of the file.
  struct Start {
    Place at;
    std::string_view suffix;
  };
  std::unordered_map<std::string, Start> starts;
  for (const Place& at : places_of(family, a.layers)) {
    for (const std::string_view suffix : {".weight", ".bias"})
      starts.emplace(own_name(at, at.row->parts[0], suffix), Start{at, suffix});
  }
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const auto found = starts.find(plan[i].name);
    HONE_REQUIRE(found != starts.end(), "family",
                 concat("The family ", family.name, " has no row for ", plan[i].name, "."));
    const auto& [at, suffix] = found->second;
    FileTensor tensor{.name = file_name(family, format, at, suffix)};
    for (const std::string_view part : at.row->parts) {
      if (part.empty()) continue;
      const std::string name = own_name(at, part, suffix);
      const auto planned = std::find_if(plan.begin() + static_cast<Index>(i), plan.end(),
                                        [&](const PlannedTensor& one) { return one.name == name; });
      HONE_REQUIRE(planned != plan.end(), "family", concat("There is no tensor ", name, "."));
      add_part(tensor, std::move(*planned));
      if (planned - plan.begin() != static_cast<Index>(i)) plan.erase(planned);
    }
    if (at.row->is_conv1d && format == FileFormat::HuggingFace && !tensor.is_vector) {
      tensor.is_transposed = true;
      std::swap(tensor.rows, tensor.cols);
    }
    out.push_back(std::move(tensor));
  }
  return out;
}

}  // namespace hone::model_io
