// SPDX-License-Identifier: Apache-2.0
// hone train lm --init with models of other families than Llama's.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "hone/app/torch/train_lm.h"
#include "hone/app/torch/tune/tuned_model.h"
#include "hone/core/file/file_io.h"
#include "hone/model_io/hf_config.h"
#include "hone/model_io/write_model.h"
#include "hone/train/task/lm/export_lm.h"
#include "hone/train/task/lm/lm_setup.h"
#include "tests/app/torch/runtime_logits.h"
#include "tests/model_io/family_models.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/peer.h"
#include "tests/support/stop_flag.h"
#include "tests/support/tensors.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using model_io::Architecture;
using test::relative_error;
using test::runtime_logits;
using testing::HasSubstr;
using torch::Tensor;

// Longer than all windows.
std::vector<infer::TokenId> some_ids() {
  std::vector<infer::TokenId> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(3 + i * i * 7 % 45);
  return ids;
}

// The logits that predict all of some_ids() but the first.
Tensor logits_of(const nn::Llama& model) {
  const torch::NoGradGuard no_grad;
  const Tensor ids = at::tensor(some_ids()).to(at::kLong).unsqueeze(0);
  return model->forward(ids)[0].narrow(0, 0, ids.size(1) - 1);
}

// Each model as a folder and as GGUF, and a text.
class FineTuneFamily : public testing::TestWithParam<Architecture> {
 protected:
  void SetUp() override {
    const test::TinyModel model(GetParam());
    const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(48));
    model_io::write_hugging_face(hf_, model.source(tokenizer.get()));
    model_io::write_gguf(gguf_, model.source(tokenizer.get()));
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += "{\"text\": \"a bad cab is a cab, as bad as a dad\"}\n";
    write_text_file(folder_.path() / "text.jsonl", lines);
  }

  TrainLmJob fine_tuning(const std::string& name, const fs::path& init) const {
    TrainLmJob job;
    set_config(job.config, "model.init=" + init.string());
    set_config(job.config, "model.context=24");
    job.config.data.path = folder_.path() / "text.jsonl";
    job.config.lr.peak = 1e-3;
    job.config.lr.warm_up_steps = 1;
    job.config.trainer.micro_batch = 2;
    job.config.trainer.steps = 3;
    job.config.trainer.validate_every = 0;
    job.config.trainer.checkpoint_every = 1;
    job.out = folder_.path() / name;
    job.threads = 1;
    return job;
  }
  static task::LmSetup set_up(task::LmConfig config) {
    const auto initial = task::take_initial_model(config);
    config.model.context = initial->architecture.context;
    return task::set_up_lm(config, &*initial);
  }
  static std::string weights_of(const TrainLmResult& result) {
    return read_text_file(result.model / "model.safetensors");
  }

  test::TemporaryFolder folder_;
  const fs::path hf_ = folder_.path() / "hf", gguf_ = folder_.path() / "m.gguf";
};

TEST_P(FineTuneFamily, starts_with_the_logits_that_the_runtime_has_of_the_file) {
  for (const fs::path& file : {hf_, gguf_}) {
    const task::LmSetup setup = set_up(fine_tuning("", file).config);
    EXPECT_LE(relative_error(runtime_logits(file, some_ids()), logits_of(setup.model)), 2e-4)
        << file;
  }
}

TEST_P(FineTuneFamily, is_written_as_the_family_with_the_trained_weights) {
  for (const fs::path& file : {hf_, gguf_}) {
    TrainLmJob job = fine_tuning("run", file);
    job.fresh = true;
    const TrainLmResult result = train_lm(job);
    EXPECT_EQ(read_json_file(result.model / "config.json"), read_json_file(hf_ / "config.json"));
    const task::LmSetup trained = set_up(fine_tuning("", result.model).config);
    const task::LmSetup before = set_up(job.config);
    EXPECT_GT(relative_error(logits_of(trained.model), logits_of(before.model)), 1e-4);
    EXPECT_LE(relative_error(runtime_logits(result.model, some_ids()), logits_of(trained.model)),
              2e-4);
  }
}

TEST_P(FineTuneFamily, is_trained_in_one_go_or_in_parts_to_the_same_bits) {
  TrainLmJob job = fine_tuning("whole", gguf_);
  const TrainLmResult whole = train_lm(job);
  job.out = folder_.path() / "parts";
  const hone::test::StopFlag stop{true};
  job.stop = stop;
  EXPECT_THROW(train_lm(job), Error);
  job.stop = {};
  job.resume = true;
  fs::remove(gguf_);  // a run that goes on does not need it
  const TrainLmResult parts = train_lm(job);
  EXPECT_TRUE(weights_of(parts) == weights_of(whole));
  EXPECT_EQ(read_json_file(parts.model / "config.json"),
            read_json_file(whole.model / "config.json"));
}

TEST_P(FineTuneFamily, opens_in_transformers_with_the_same_logits) {
  HONE_REQUIRE_PEER("transformers", "torch");
  const TrainLmResult result = train_lm(fine_tuning("run", hf_));
  Json config = read_json_file(result.model / "config.json");
  config["pad_token_id"] = 0;  // that of Phi-3 is by default one of its 32,064 tokens
  write_json_file(result.model / "config.json", config);
  const Json texts = {{"texts", Json::array()}, {"ids", Json::array({some_ids()})}};
  write_json_file(folder_.path() / "texts.json", texts);
  test::run_peer(
      "tests/app/torch/transformers_open.py",
      {result.model.string(), (folder_.path() / "texts.json").string(), folder_.path().string()});
  std::vector<float> logits(some_ids().size() * 48);
  std::ifstream(folder_.path() / "logits.f32", std::ios::binary)
      .read(reinterpret_cast<char*>(logits.data()),
            static_cast<std::streamsize>(logits.size() * sizeof(float)));
  const Tensor theirs = at::tensor(logits).view({-1, 48}).narrow(0, 0, std::ssize(some_ids()) - 1);
  EXPECT_LE(relative_error(runtime_logits(result.model, some_ids()), theirs), 2e-4);
}

std::string name_of(const testing::TestParamInfo<Architecture>& info) {
  return info.param.family + "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Families, FineTuneFamily,
                         testing::ValuesIn(test::trainable_architectures()), name_of);

// What a family computes and training does not is said before anything is written.
TEST(FineTuneRefusals, name_the_trait_and_leave_no_folder) {
  const test::TemporaryFolder folder;
  const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(48));
  const auto said = [&](const char* config) {
    const Architecture architecture =
        model_io::read_hf_config(parse_json(config, "config"), Json::object(), "config.json");
    const test::TinyModel model(architecture);
    model_io::write_hugging_face(folder.path() / "m", model.source(tokenizer.get()));
    TrainLmJob job;
    set_config(job.config, "model.init=" + (folder.path() / "m").string());
    job.out = folder.path() / "run";
    const std::string message = test::refusal([&] { train_lm(job); }, ErrorCategory::Unsupported);
    EXPECT_FALSE(fs::exists(job.out));
    return message;
  };
  EXPECT_THAT(said(R"({"architectures": ["Gemma2ForCausalLM"], "vocab_size": 48,
                       "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
                       "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8})"),
              HasSubstr("soft cap, got 50"));
  EXPECT_THAT(said(R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 48, "n_embd": 32,
                       "n_layer": 2, "n_head": 4, "n_positions": 32})"),
              HasSubstr("got LayerNorm"));
}

// A factored layer can only be written in a model of the llama family.
TEST(FineTuneRefusals, layers_of_other_families_are_not_tuned) {
  const test::TemporaryFolder folder;
  const test::TinyModel model(test::trainable_architectures()[1]);
  const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(48));
  model_io::write_hugging_face(folder.path() / "m", model.source(tokenizer.get()));
  EXPECT_THAT(
      test::refusal([&] { open_tuned_lm({.model = folder.path() / "m", .data = "stories"}); },
                    ErrorCategory::Unsupported),
      HasSubstr("llama family, got 'qwen2'"));
}

}  // namespace
}  // namespace hone::app
