// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/model.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/model_io/tensor_plan.h"

namespace hone::compress {
namespace {

// Layers that are alike have one width together.
void unite(std::vector<Index>& widths, Index& common) {
  if (widths.empty() ||
      std::ranges::any_of(widths, [&](Index width) { return width != widths.front(); }))
    return;
  common = widths.front();
  widths.clear();
}

}  // namespace

Model::Model(const model_io::ModelFile& original)
    : original_(&original),
      architecture_(original.architecture()),
      tensors_(original.tensors()),
      owners_(tensors_.size()) {
  index_tensors();
}

Model::Model(const Model& other)
    : ModelFile(),
      original_(other.original_),
      architecture_(other.architecture_),
      tensors_(other.tensors_),
      owners_(other.owners_) {
  index_tensors();
}

Model& Model::operator=(const Model& other) {
  original_ = other.original_;
  architecture_ = other.architecture_;
  tensors_ = other.tensors_;
  owners_ = other.owners_;
  index_tensors();
  return *this;
}

Index Model::bytes() const {
  Index total = 0;
  for (const model_io::NamedMatrix& tensor : tensors_) total += tensor.matrix.stored_bytes();
  return total;
}

std::vector<Index> Model::changed_from(const Model& other) const {
  std::vector<Index> changed;
  for (Index at = 0; at < std::ssize(tensors_); ++at) {
    const auto i = static_cast<std::size_t>(at);
    const model_io::NamedMatrix* theirs = other.find(tensors_[i].name);
    const bool same =
        theirs != nullptr &&
        owners_[i] == other.owners_[static_cast<std::size_t>(theirs - other.tensors_.data())] &&
        theirs->matrix.bytes.data() == tensors_[i].matrix.bytes.data() &&
        theirs->matrix.quant.codes.data() == tensors_[i].matrix.quant.codes.data();
    if (!same) changed.push_back(at);
  }
  return changed;
}

void Model::replace(Index at, EncodedMatrix matrix, bool act_int8) {
  const auto i = static_cast<std::size_t>(at);
  owners_[i] = std::make_shared<const EncodedMatrix>(std::move(matrix));
  tensors_[i].matrix = owners_[i]->stored;
  tensors_[i].matrix.act_int8 = act_int8;
}

void Model::add(std::string name, EncodedMatrix matrix, bool act_int8) {
  tensors_.emplace_back().name = std::move(name);
  owners_.emplace_back();
  index_tensors();
  replace(std::ssize(tensors_) - 1, std::move(matrix), act_int8);
}

void Model::set_widths(Index layer, Index heads, Index intermediate) {
  model_io::Architecture& a = architecture_;
  const auto set = [&](std::vector<Index>& widths, Index& common, Index value) {
    if (widths.empty()) widths.assign(static_cast<std::size_t>(a.layers), common);
    widths[static_cast<std::size_t>(layer)] = value;
    unite(widths, common);
  };
  set(a.layer_heads, a.heads, heads);
  set(a.layer_intermediate, a.intermediate_size, intermediate);
}

void Model::add_factored(model_io::FactoredLayer layer) {
  architecture_.factored.push_back(std::move(layer));
}

void Model::remove_layer(Index layer) {
  model_io::Architecture& a = architecture_;
  if (a.layers == 1) fail_unsupported("remove layer", "This is the model's only layer.");
  if (a.inverse_layer_scale)
    fail_unsupported("remove layer", "The model divides scores by the place of their layer.");
  for (std::size_t i = 0; i < tensors_.size();) {
    const Index own = model_io::layer_of(tensors_[i].name);
    if (own == layer) {
      tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(i));
      owners_.erase(owners_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    if (own > layer) {
      std::string& name = tensors_[i].name;
      name = model_io::layer_name(own - 1, name.substr(model_io::layer_name(own, "").size()));
    }
    ++i;
  }
  for (std::vector<Index>* each : {&a.windows, &a.layer_heads, &a.layer_intermediate}) {
    if (!each->empty()) each->erase(each->begin() + layer);
  }
  --a.layers;
  unite(a.layer_heads, a.heads);
  unite(a.layer_intermediate, a.intermediate_size);
  index_tensors();
}

void Model::drop_pages(const model_io::NamedMatrix& tensor) const {
  const model_io::NamedMatrix* first = original_->find(tensor.name);
  const bool is_mapped = first != nullptr &&
                         first->matrix.bytes.data() == tensor.matrix.bytes.data() &&
                         first->matrix.quant.codes.data() == tensor.matrix.quant.codes.data();
  if (is_mapped) original_->drop_pages(*first);
}

Index parameters_of(const model_io::ModelFile& model) {
  Index count = 0;
  for (const model_io::NamedMatrix& tensor : model.tensors())
    count += tensor.matrix.rows * tensor.matrix.cols;
  return count;
}

Role role_of(const model_io::NamedMatrix& tensor) {
  if (tensor.is_vector) return Role::Other;
  if (tensor.name == "model.embed_tokens.weight") return Role::Embedding;
  if (tensor.name == "lm_head.weight") return Role::Head;
  const bool is_linear = tensor.name.ends_with("_proj.weight") || tensor.name.ends_with("_proj.a");
  return is_linear ? Role::Linear : Role::Other;
}

}  // namespace hone::compress
