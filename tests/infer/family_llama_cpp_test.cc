// SPDX-License-Identifier: Apache-2.0
// llama.cpp continues the f32 GGUF files that hone writes of each family as transformers continues
// the models that they were made from.
#include <gtest/gtest.h>

#include "hone/core/file/json_io.h"
#include "hone/model_io/write_model.h"
#include "hone/text/load_tokenizer.h"
#include "hone/text/vocabulary.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

namespace fs = std::filesystem;

// llama.cpp needs pieces, for Phi-3 one of this name; ids alone are used.
std::shared_ptr<const text::Tokenizer> numbered_pieces(Index size) {
  text::Vocabulary v;
  v.model = text::TokenizerModel::SentencePieceBpe;
  v.pieces = {"<unk>", "<s>", "</s>", "\n", "<|endoftext|>"};
  v.types = {text::TokenType::Unknown, text::TokenType::Control, text::TokenType::Control,
             text::TokenType::Normal, text::TokenType::Control};
  for (Index i = std::ssize(v.pieces); i < size; ++i)
    v.pieces.push_back("\xe2\x96\x81" + std::to_string(i));
  v.types.resize(v.pieces.size(), text::TokenType::Normal);
  v.scores.resize(v.pieces.size(), -1.0f);
  v.unknown = 0;
  v.bos = 1;
  v.eos = 2;
  v.byte_fallback = false;
  return text::make_tokenizer(v, "test");
}

// Configurations of family_parity.py that llama.cpp can express: of Qwen 2 and OLMo 2 it wants
// heads that add up to the hidden size, of OLMo 2 an output matrix.
constexpr const char* kModelNames[] = {"llama-0",  "llama-2",  "llama-4", "llama-6", "mistral-1",
                                       "qwen2-0",  "qwen2-5",  "qwen3-1", "qwen3-5", "gemma2-0",
                                       "gemma3-0", "gemma3-1", "phi3-0",  "phi3-2",  "olmo2-5",
                                       "gpt2-0",   "gpt2-3",   "gpt2-5"};

TEST(FamilyLlamaCpp, continues_converted_models_as_transformers_does) {
  HONE_REQUIRE_PEER("transformers", "torch", "safetensors", "llama_cpp");
  const hone::test::TemporaryFolder folder;
  hone::test::run_peer("tests/infer/family_parity.py", {folder.path().string()});
  Json jobs = Json::array();
  std::vector<Json> expected;
  for (const char* name : kModelNames) {
    const auto model = model_io::open_model_or_throw(folder.path() / name,
                                                     {.tokenizer = {}, .need_tokenizer = false});
    const auto tokenizer = numbered_pieces(model->architecture().vocab_size);
    const fs::path file = folder.path() / (std::string(name) + ".gguf");
    model_io::write_gguf(file,
                         {model->architecture(), model->tensors(), tokenizer.get(), Json::object()},
                         model_io::StoreType::F32);
    expected.push_back(read_json_file(folder.path() / name / "expected.json"));
    jobs.push_back(Json::array({file.string(), expected.back()["prompt"]}));
  }
  const Json rows = parse_json(
      hone::test::run_peer("tests/infer/llama_cpp_ids.py", {jobs.dump(), "20"}), "llama.cpp");
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(rows[i], expected[i]["greedy"])
        << kModelNames[i] << " least margin " << expected[i]["least_margin"];
}

}  // namespace
}  // namespace hone::infer
