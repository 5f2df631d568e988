// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hone/core/philox.h"
#include "hone/model_io/model_file.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/model_io/write_model.h"
#include "hone/text/vocabulary.h"

namespace hone::test {

// A model file without its tokenizer.
inline std::unique_ptr<model_io::ModelFile> open_bare(const std::filesystem::path& path) {
  return model_io::open_model_or_throw(path, {.tokenizer = {}, .need_tokenizer = false});
}

inline model_io::Architecture tiny_architecture() {
  model_io::Architecture a;
  a.vocab_size = 48;
  a.hidden_size = 32;
  a.intermediate_size = 40;
  a.layers = 2;
  a.heads = 4;
  a.kv_heads = 2;
  a.head_dim = 16;  // not hidden / heads
  a.context = 64;
  a.rope.rotary_dims = 16;
  a.stop_ids = {2};
  a.bos_id = 1;
  return a;
}

// Random f32 weights for an architecture, in memory.
class TinyModel {
 public:
  explicit TinyModel(const model_io::Architecture& architecture, std::uint64_t seed = 1)
      : architecture_(architecture) {
    PhiloxStream random(seed);
    for (const auto& plan : model_io::plan_tensors(architecture)) {
      std::vector<float>& values = values_.emplace_back();
      for (Index i = 0; i < plan.rows * plan.cols; ++i)
        values.push_back(static_cast<float>(static_cast<double>(random.below(20001)) / 1e4 - 1));
      model_io::NamedMatrix& tensor = tensors_.emplace_back();
      tensor.name = plan.name;
      tensor.is_vector = plan.is_vector;
      tensor.matrix.rows = plan.rows;
      tensor.matrix.cols = plan.cols;
      tensor.matrix.bytes = std::as_bytes(std::span(values));
    }
  }
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;

  const model_io::Architecture& architecture() const { return architecture_; }
  const std::vector<model_io::NamedMatrix>& tensors() const { return tensors_; }
  model_io::ModelSource source(const text::Tokenizer* tokenizer = nullptr) const {
    return {architecture_, tensors_, tokenizer, Json::object()};
  }

 private:
  model_io::Architecture architecture_;
  std::deque<std::vector<float>> values_;
  std::vector<model_io::NamedMatrix> tensors_;
};

inline std::vector<float> decoded(const model_io::NamedMatrix& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.matrix.rows * tensor.matrix.cols));
  decode(tensor.matrix, out);
  return out;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// unknown, BOS, EOS and pieces that SentencePiece could have learnt.
inline text::Vocabulary tiny_sentencepiece(Index size) {
  text::Vocabulary v;
  v.model = text::TokenizerModel::SentencePieceBpe;
  v.pieces = {"<unk>", "<s>", "</s>"};
  v.types = {text::TokenType::Unknown, text::TokenType::Control, text::TokenType::Control};
  v.pieces.push_back("\xe2\x96\x81");
  for (char c = 'a'; static_cast<Index>(v.pieces.size()) < size && c <= 'z'; ++c)
    v.pieces.push_back(std::string(1, c));
  for (char c = 'a'; static_cast<Index>(v.pieces.size()) < size; ++c)
    v.pieces.push_back("\xe2\x96\x81" + std::string(1, c));
  v.types.resize(v.pieces.size(), text::TokenType::Normal);
  for (std::size_t i = 0; i < v.pieces.size(); ++i)
    v.scores.push_back(i < 3 ? 0.0f : -static_cast<float>(i));
  v.unknown = 0;
  v.bos = 1;
  v.eos = 2;
  v.add_bos = v.add_space_prefix = true;
  v.byte_fallback = false;
  return v;
}

}  // namespace hone::test
