// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/model.h"

#include <algorithm>

namespace hone::compress {

Model::Model(const model_io::ModelFile& original)
    : original_(&original), tensors_(original.tensors()), owners_(tensors_.size()) {
  index_tensors();
}

Model::Model(const Model& other)
    : ModelFile(), original_(other.original_), tensors_(other.tensors_), owners_(other.owners_) {
  index_tensors();
}

Model& Model::operator=(const Model& other) {
  original_ = other.original_;
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

void Model::replace(Index at, EncodedMatrix matrix, bool act_int8) {
  const auto i = static_cast<std::size_t>(at);
  owners_[i] = std::make_shared<const EncodedMatrix>(std::move(matrix));
  tensors_[i].matrix = owners_[i]->stored;
  tensors_[i].matrix.act_int8 = act_int8;
}

void Model::drop_pages(const model_io::NamedMatrix& tensor) const {
  const model_io::NamedMatrix* first = original_->find(tensor.name);
  const bool is_mapped = first != nullptr &&
                         first->matrix.bytes.data() == tensor.matrix.bytes.data() &&
                         first->matrix.quant.codes.data() == tensor.matrix.quant.codes.data();
  if (is_mapped) original_->drop_pages(*first);
}

Role role_of(const model_io::NamedMatrix& tensor) {
  if (tensor.is_vector) return Role::Other;
  if (tensor.name == "model.embed_tokens.weight") return Role::Embedding;
  if (tensor.name == "lm_head.weight") return Role::Head;
  return tensor.name.ends_with("_proj.weight") ? Role::Linear : Role::Other;
}

}  // namespace hone::compress
