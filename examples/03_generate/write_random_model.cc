// SPDX-License-Identifier: Apache-2.0
// Writes a Hugging Face folder with a tiny Llama of seeded random weights and a tokenizer of bytes,
// so that the example can be tested without any data: its text is noise.
//   write_random_model FOLDER
#include <hone/core/error.h>
#include <hone/core/philox.h>
#include <hone/model_io/tensor_plan.h>
#include <hone/model_io/write_model.h>
#include <hone/text/bpe_trainer.h>

#include <cstdio>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  namespace model_io = hone::model_io;
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_random_model FOLDER\n");
    return 2;
  }
  constexpr hone::Index kVocabulary = 257;  // the end-of-text token and the bytes: no merges
  const std::vector<std::string_view> texts{""};
  const auto tokenizer = hone::text::make_tokenizer(
      hone::text::train_byte_level_bpe(texts, {.vocab_size = kVocabulary}));

  model_io::Architecture architecture;
  architecture.vocab_size = kVocabulary;
  architecture.hidden_size = 64;
  architecture.intermediate_size = 128;
  architecture.layers = 2;
  architecture.heads = architecture.kv_heads = 2;
  architecture.head_dim = architecture.rope.rotary_dims = 32;
  architecture.context = 128;
  architecture.tied_embeddings = true;
  architecture.stop_ids = {*tokenizer->eos()};

  hone::PhiloxStream random(1);
  std::deque<std::vector<float>> values;  // what the views in `tensors` look at
  std::vector<model_io::NamedMatrix> tensors;
  for (const model_io::PlannedTensor& plan : model_io::plan_tensors(architecture)) {
    std::vector<float>& weights = values.emplace_back(plan.rows * plan.cols, 1.0f);
    for (float& weight : weights) {
      if (!plan.is_vector) weight = 0.2f * (random.uniform() - 0.5f);
    }
    hone::StoredMatrix matrix;
    matrix.rows = plan.rows;
    matrix.cols = plan.cols;
    matrix.bytes = std::as_bytes(std::span(weights));
    tensors.push_back({plan.name, matrix, plan.is_vector});
  }
  try {
    model_io::write_hugging_face(
        argv[1], {.architecture = architecture, .tensors = tensors, .tokenizer = tokenizer.get()});
    return 0;
  } catch (const hone::Error& error) {
    std::fprintf(stderr, "write_random_model: %s\n", error.what());
    return hone::exit_status(error.category());
  }
}
