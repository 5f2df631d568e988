// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/model.h"

namespace hone::compress {

Model::Model(const model_io::ModelFile& original)
    : original_(original), tensors_(original.tensors()) {}

Index Model::bytes() const {
  Index total = 0;
  for (const model_io::NamedMatrix& tensor : tensors_) total += tensor.matrix.stored_bytes();
  return total;
}

bool Model::is_original(Index at) const {
  const StoredMatrix& now = tensors_[static_cast<std::size_t>(at)].matrix;
  const StoredMatrix& first = original_.tensors()[static_cast<std::size_t>(at)].matrix;
  return now.bytes.data() == first.bytes.data() &&
         now.quant.codes.data() == first.quant.codes.data();
}

void Model::replace(Index at, QuantMatrix matrix, bool act_int8) {
  owned_.push_back(std::make_unique<QuantMatrix>(std::move(matrix)));
  const QuantMatrix& kept = *owned_.back();
  StoredMatrix stored;
  stored.layout = WeightLayout::Canonical;
  stored.rows = kept.rows;
  stored.cols = kept.cols;
  stored.quant = kept.view();
  stored.act_int8 = act_int8;
  tensors_[static_cast<std::size_t>(at)].matrix = stored;
}

Role role_of(const model_io::NamedMatrix& tensor) {
  if (tensor.is_vector) return Role::Other;
  if (tensor.name == "model.embed_tokens.weight") return Role::Embedding;
  if (tensor.name == "lm_head.weight") return Role::Head;
  return tensor.name.ends_with("_proj.weight") ? Role::Linear : Role::Other;
}

}  // namespace hone::compress
