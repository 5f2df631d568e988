// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/lm/initial_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hone/core/file/file_io.h"
#include "hone/model_io/hf_config.h"
#include "hone/model_io/write_model.h"
#include "hone/train/task/lm/lm_data.h"
#include "hone/train/task/lm/lm_setup.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::task {
namespace {

namespace fs = std::filesystem;
using test::refusal;
using test::TinyModel;
using testing::HasSubstr;

LmConfig config_with(const std::vector<std::string>& settings) {
  LmConfig config;
  for (const std::string& setting : settings) set_config(config, setting);
  return config;
}

TEST(InitialModel, provides_the_keys_of_the_model_that_were_not_given) {
  const model_io::Architecture architecture = test::tiny_architecture();
  const LmConfig config = with_architecture(
      config_with({"model.init=m", "model.layers=2", "model.context=16"}), architecture);
  model_io::Architecture described = make_architecture(config, architecture.vocab_size);
  EXPECT_EQ(described.context, 16);
  described.context = architecture.context;
  EXPECT_EQ(described.parameters(), architecture.parameters());
  EXPECT_EQ(described.kv_heads, 2);
  EXPECT_EQ(described.head_dim, 16);
  EXPECT_FALSE(described.tied_embeddings);
  EXPECT_EQ(with_architecture(config_with({"model.init=m"}), architecture).model.context, 64);
  EXPECT_EQ(refusal([&] { check_config(config); }), "");
}

TEST(InitialModel, refuses_a_given_key_that_contradicts_it) {
  const auto said = [](const std::string& setting) {
    return refusal([&] {
      with_architecture(config_with({"model.init=m", setting}), test::tiny_architecture());
    });
  };
  for (const char* other :
       {"model.hidden_size=64", "model.intermediate_size=41", "model.layers=3", "model.heads=8",
        "model.kv_heads=4", "model.kv_heads=0", "model.head_dim=8", "model.head_dim=0",
        "model.context=65", "model.rope_theta=10001", "model.norm_eps=1e-6",
        "model.tied_embeddings=true", "model.attention_bias=true", "model.mlp_bias=true"}) {
    const std::string key = std::string(other).substr(0, std::string(other).find('='));
    EXPECT_THAT(said(other), HasSubstr("[" + key + "] expected ")) << other;
  }
  EXPECT_EQ(said("model.layers=3"), "[model.layers] expected 2, that of m, got 3");
  for (const char* same : {"model.hidden_size=32", "model.kv_heads=2", "model.head_dim=16",
                           "model.context=64", "model.norm_eps=1e-5"}) {
    EXPECT_EQ(said(same), "") << same;
  }
}

TEST(InitialModel, brings_its_tokenizer_so_that_a_given_one_is_refused) {
  for (const char* setting : {"data.tokenizer=bpe", "data.vocab_size=512"}) {
    EXPECT_THAT(refusal([&] {
                  check_config(config_with({"model.init=m", setting}));
                }),
                HasSubstr("This key has no effect with model.init"));
    EXPECT_EQ(refusal([&] { check_config(config_with({setting})); }), "");
  }
}

class InitialModelFile : public testing::Test {
 protected:
  void write(const model_io::Architecture& architecture = test::tiny_architecture()) {
    const TinyModel model(architecture);
    const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(architecture.vocab_size));
    model_io::ModelSource source = model.source(tokenizer.get());
    source.generation_defaults = {{"temperature", 0.5}};
    model_io::write_hugging_face(hf_, source);
    model_io::write_gguf(gguf_, source);
  }

  test::TemporaryFolder folder_;
  const fs::path hf_ = folder_.path() / "run" / "model", gguf_ = folder_.path() / "m.gguf";
};

TEST_F(InitialModelFile, is_the_same_from_a_folder_a_run_and_a_gguf_and_after_it_was_kept) {
  model_io::Architecture architecture = test::tiny_architecture();
  architecture.rope.scaling = model_io::RopeScaling::Llama3;
  architecture.rope.factor = 8;
  architecture.rope.original_context = 16;
  write(architecture);
  const InitialModel model = open_initial_model(hf_);
  const fs::path kept = folder_.path() / "kept";
  write_initial_model(kept, model);
  EXPECT_FALSE(fs::exists(kept / "model.safetensors"));
  const Json wanted = model_io::write_hf_config(architecture, "float32");
  for (const InitialModel& same : {model, open_initial_model(folder_.path() / "run"),
                                   open_initial_model(gguf_), read_initial_model(kept)}) {
    EXPECT_EQ(model_io::write_hf_config(same.architecture, "float32"), wanted) << same.path;
    EXPECT_EQ(same.architecture.rope.pairing, model_io::RopePairing::HalfSplit);
    EXPECT_EQ(same.tokenizer->encode("a bad cab"), model.tokenizer->encode("a bad cab"));
    EXPECT_EQ(same.tokenizer->adds_bos(), true);
  }
  EXPECT_EQ(model.generation_defaults.at("temperature"), 0.5);
  EXPECT_EQ(read_initial_model(kept).generation_defaults.at("temperature"), 0.5);
  EXPECT_EQ(read_initial_model(kept).file, nullptr);
}

TEST_F(InitialModelFile, that_training_or_its_export_cannot_have_is_refused) {
  const auto said = [&](const fs::path& path, ErrorCategory category) {
    return refusal([&] { open_initial_model(path); }, category);
  };
  EXPECT_THAT(said(folder_.path() / "none", ErrorCategory::NotFound), HasSubstr("none"));
  write_text_file(folder_.path() / "m.safetensors", "x");
  EXPECT_THAT(said(folder_.path() / "m.safetensors", ErrorCategory::Unsupported),
              HasSubstr("expected a folder with config.json"));
  model_io::Architecture architecture = test::tiny_architecture();
  architecture.rope.frequency_divisors.assign(8, 2.0F);
  const TinyModel divided(architecture);
  const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(architecture.vocab_size));
  model_io::write_gguf(gguf_, divided.source(tokenizer.get()));
  EXPECT_THAT(said(gguf_, ErrorCategory::Unsupported), HasSubstr("rope_freqs.weight"));
  architecture.rope = test::tiny_architecture().rope;
  architecture.rope.rotary_dims = 8;
  const TinyModel partial(architecture);
  model_io::write_gguf(gguf_, partial.source(tokenizer.get()));
  EXPECT_THAT(said(gguf_, ErrorCategory::Unsupported),
              HasSubstr("with RoPE over all 16 dimensions of a head, got 8"));
  model_io::write_hugging_face(hf_, TinyModel(test::tiny_architecture()).source());
  EXPECT_THAT(said(hf_, ErrorCategory::NotFound), HasSubstr("There is no tokenizer"));
}

TEST_F(InitialModelFile, is_read_from_what_was_kept_where_that_is_there) {
  write();
  LmConfig config = config_with({"model.init=" + gguf_.string()}), kept = config, none;
  const auto model = take_initial_model(config, folder_.path() / "kept");
  ASSERT_TRUE(model.has_value());
  EXPECT_NE(model->file, nullptr) << "nothing is kept yet";
  EXPECT_EQ(config.model.hidden_size, 32);
  write_initial_model(folder_.path() / "kept", *model);
  fs::remove(gguf_);
  EXPECT_EQ(take_initial_model(kept, folder_.path() / "kept")->file, nullptr);
  EXPECT_EQ(to_json(kept), to_json(config));
  EXPECT_FALSE(take_initial_model(none, folder_.path() / "kept").has_value());
  EXPECT_EQ(to_json(none), to_json(LmConfig()));
}

TEST_F(InitialModelFile, does_not_replace_a_folder_of_something_else) {
  write();
  write_text_file(folder_.path() / "notes.txt", "mine");
  EXPECT_THAT(refusal([&] { write_initial_model(folder_.path(), open_initial_model(gguf_)); }),
              HasSubstr("is not replaced"));
  EXPECT_TRUE(fs::exists(folder_.path() / "notes.txt"));
}

TEST_F(InitialModelFile, sets_up_its_weights_and_documents_that_begin_with_its_bos) {
  write();
  LmConfig config = config_with({"model.init=" + hf_.string(), "model.context=16"});
  config.data.path = folder_.path() / "text.jsonl";
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"text\": \"a bad cab is a cab\"}\n";
  write_text_file(config.data.path, lines);
  const auto initial = take_initial_model(config);
  const LmSetup setup = set_up_lm(config, &*initial);
  const model_io::Architecture& architecture = setup.model->architecture();
  EXPECT_EQ(architecture.context, 16);
  EXPECT_EQ(architecture.vocab_size, 48);
  EXPECT_EQ(architecture.stop_ids, (std::vector<text::TokenId>{2}));
  EXPECT_EQ(setup.data.tokenizer, initial->tokenizer);
  const text::TokenStream& train = setup.data.train;
  ASSERT_EQ(train.ends.size(), 18U);
  for (std::size_t i = 0; i < train.ends.size(); ++i) {
    const auto begin = static_cast<std::size_t>(i == 0 ? 0 : train.ends[i - 1]);
    EXPECT_EQ(train.ids[begin], 1) << "BOS";
    EXPECT_EQ(train.ids[static_cast<std::size_t>(train.ends[i]) - 1], 2) << "EOS";
  }
  const TinyModel written(test::tiny_architecture());
  const torch::Tensor got = setup.model->named_parameters()["embed_tokens"].detach();
  const std::vector<float> wanted = test::decoded(written.tensors().front());
  EXPECT_TRUE(got.view({-1}).equal(at::tensor(wanted)));
}

}  // namespace
}  // namespace hone::task
