// SPDX-License-Identifier: Apache-2.0
// hone train lm --init: training that starts from a model.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hone/app/torch/memory_lm.h"
#include "hone/app/torch/train_lm.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/model_io/model_file.h"
#include "hone/model_io/write_model.h"
#include "hone/train/nn/load_llama.h"
#include "hone/train/sketch/convert.h"
#include "hone/train/surgery/layer_select.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/train/task/lm/export_lm.h"
#include "hone/train/task/lm/lm_setup.h"
#include "hone/train/trainer/checkpoint.h"
#include "hone/train/trainer/metrics_log.h"
#include "tests/app/torch/runtime_logits.h"
#include "tests/support/error_of.h"
#include "tests/support/stop_flag.h"
#include "tests/support/tensors.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// One short run, as a folder and as GGUF files, from which the tests go on.
class FineTune : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TemporaryFolder>();
    std::string text;
    for (int i = 0; i < 400; ++i) text += i % 3 == 0 ? "the cat sat.\n" : "a dog ran.\n";
    write_text_file(folder_->path() / "text.txt", text);
    TrainLmJob job = job_in("first");
    for (const char* setting :
         {"model.hidden_size=32", "model.intermediate_size=64", "model.layers=2", "model.heads=4",
          "model.kv_heads=2", "model.head_dim=16", "model.context=32", "model.rope_theta=500",
          "model.tied_embeddings=false", "data.vocab_size=264", "lr.peak=0.01",
          "trainer.steps=60"}) {
      set_config(job.config, setting);
    }
    first_ = train_lm(job);
    const auto model = model_io::open_model_or_throw(first_.model);
    for (const auto type : {model_io::StoreType::F32, model_io::StoreType::Q8_0}) {
      model_io::write_gguf(
          gguf(type), {model->architecture(), model->tensors(), model->tokenizer().get()}, type);
    }
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static fs::path gguf(model_io::StoreType type) {
    return folder_->path() / (std::string(name_of(type)) + ".gguf");
  }
  static TrainLmJob job_in(const std::string& name) {
    TrainLmJob job;
    job.config.data.path = folder_->path() / "text.txt";
    job.config.lr.warm_up_steps = 2;
    job.config.trainer.micro_batch = 4;
    job.config.trainer.validate_every = 0;
    job.config.trainer.checkpoint_every = 2;
    job.out = folder_->path() / name;
    job.threads = 1;
    return job;
  }
  static TrainLmJob fine_tuning(const std::string& name, const fs::path& init, Index steps = 6) {
    TrainLmJob job = job_in(name);
    set_config(job.config, "model.init=" + init.string());
    job.config.trainer.steps = steps;
    return job;
  }
  static void interrupt(TrainLmJob& job) {  // after a step
    const hone::test::StopFlag stop{true};
    job.stop = stop;
    EXPECT_THROW(train_lm(job), Error);
    job.stop = {};
    job.resume = true;
  }
  static std::string weights_of(const TrainLmResult& result) {
    return read_text_file(result.model / "model.safetensors");
  }

  // The first run's model with a low-rank down_proj and a sketched gate_up_proj in each layer.
  static fs::path factored_model(const std::string& name) {
    const auto file = model_io::open_model_or_throw(first_.model);
    nn::Llama model(file->architecture(), 1);
    nn::load_llama(*model, *file);
    std::uint64_t seed = 1;
    const auto put = [&](const std::string& path, const nn::FitOptions& options) {
      const auto* dense = nn::find_layer(*model, path).module->as<torch::nn::LinearImpl>();
      nn::replace(*model, path, torch::nn::AnyModule(nn::from_linear(*dense, options)));
    };
    for (const std::string layer : {"layers.0.mlp.", "layers.1.mlp."}) {
      put(layer + "down_proj", {.rank = 12});
      put(layer + "gate_up_proj", {.mode = nn::FactorMode::Sketched,
                                   .fit = nn::Fit::Projection,
                                   .rank = 16,
                                   .terms = 2,
                                   .seed = seed++});
    }
    const fs::path path = folder_->path() / name;
    task::export_lm(path, *model, {.tokenizer = file->tokenizer().get()});
    return path;
  }

  static std::unique_ptr<test::TemporaryFolder> folder_;
  static TrainLmResult first_;
};
std::unique_ptr<test::TemporaryFolder> FineTune::folder_;
TrainLmResult FineTune::first_;

TEST_F(FineTune, begins_at_the_loss_of_the_finished_run_and_goes_on_from_it) {
  TrainLmJob still = fine_tuning("still", first_.out, 1);
  still.config.lr.peak = 1e-9;
  EXPECT_NEAR(train_lm(still).val_loss, first_.val_loss, 1e-5);
  TrainLmJob moving = fine_tuning("moving", first_.model, 20);
  moving.config.lr.peak = 1e-3;
  const TrainLmResult result = train_lm(moving);
  EXPECT_LT(result.val_loss, first_.val_loss);
  const double begin = trainer::read_metrics(result.out / "metrics.csv").front().loss;
  EXPECT_LT(begin, first_.val_loss + 0.5) << "a new model has " << std::log(264.0);
}

TEST_F(FineTune, leaves_the_architecture_and_the_tokenizer_of_the_model) {
  for (const fs::path& init : {first_.out, gguf(model_io::StoreType::F32)}) {
    TrainLmJob job = fine_tuning("kept", init, 2);
    job.fresh = true;
    set_config(job.config, "model.context=16");
    const TrainLmResult result = train_lm(job);
    EXPECT_EQ(read_json_file(result.model / "config.json"),
              read_json_file(first_.model / "config.json"))
        << init << ": its own context, too";
    const auto before = model_io::open_model_or_throw(first_.model)->tokenizer(),
               after = model_io::open_model_or_throw(result.model)->tokenizer();
    ASSERT_EQ(after->vocab_size(), before->vocab_size());
    for (const char* text : {"the cat sat.\na dog ran.\n", "dogs, 42 cats\t\xc3\xa9"}) {
      EXPECT_EQ(after->encode(text), before->encode(text));
    }
    const std::string toml = read_text_file(result.out / "train.toml");
    for (const char* line : {"layers = 2", "context = 16", "tied_embeddings = false",
                             "# vocab_size = 512  (no effect with model.init)"}) {
      EXPECT_THAT(toml, HasSubstr(line));
    }
  }
}

TEST_F(FineTune, leaves_the_chat_template_and_the_license_of_the_model) {
  const fs::path init = folder_->path() / "chat";
  const std::string chat = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}";
  fs::copy(first_.model, init, fs::copy_options::recursive);
  write_text_file(init / "chat_template.jinja", chat);
  write_text_file(init / "README.md", "---\nlicense: mit\n---\n\n# A model\n");
  TrainLmJob job = fine_tuning("chats", init);
  interrupt(job);
  fs::remove_all(init);  // a run that goes on does not need it
  const auto about = model_io::open_model_or_throw(train_lm(job).model)->metadata();
  ASSERT_NE(about.chat_template(), nullptr);
  EXPECT_EQ(*about.chat_template(), chat);
  EXPECT_EQ(about.text("general.license"), "mit");
}

// The runtime serves the same file with its own kernels, from either order of q and k.
TEST_F(FineTune, starts_with_the_logits_that_the_runtime_has_of_the_file) {
  for (const fs::path& file :
       {first_.model, gguf(model_io::StoreType::F32), gguf(model_io::StoreType::Q8_0)}) {
    task::LmConfig config = fine_tuning("", file).config;
    const auto initial = task::take_initial_model(config);
    const task::LmSetup setup = task::set_up_lm(config, &*initial);
    std::vector<infer::TokenId> ids;
    for (int i = 0; i < 32; ++i) ids.push_back(i * 37 % 264);
    const torch::NoGradGuard no_grad;
    const torch::Tensor row_of_ids = at::tensor(ids).to(at::kLong).unsqueeze(0);
    const torch::Tensor ours = setup.model->forward(row_of_ids)[0].narrow(0, 0, 31);
    EXPECT_LE(test::relative_error(test::runtime_logits(file, ids), ours), 2e-4) << file;
  }
}

TEST_F(FineTune, goes_on_without_the_model_that_it_started_from) {
  const fs::path init = folder_->path() / "gone";
  fs::copy(first_.model, init, fs::copy_options::recursive);
  TrainLmJob job = fine_tuning("whole", init);
  set_config(job.config, "model.context=16");
  const TrainLmResult expected = train_lm(job);
  job.out = folder_->path() / "parts";
  interrupt(job);
  job.config.model.init = folder_->path() / "other";
  EXPECT_THAT(test::refusal([&] { train_lm(job); }), HasSubstr("[model.init] expected"));
  fs::remove_all(init);
  job.config.model.init = init;
  EXPECT_TRUE(weights_of(train_lm(job)) == weights_of(expected));
  // As the command line reads the configuration of a run.
  TrainLmJob again = job;
  again.config = {};
  read_config(again.config, job.out / "train.toml");
  EXPECT_TRUE(weights_of(train_lm(again)) == weights_of(expected));
  again.config.model.layers = 3;
  EXPECT_THAT(test::refusal([&] { train_lm(again); }), HasSubstr("[model.layers] expected 2"));

  job.resume = false;
  job.fresh = true;
  EXPECT_THAT(test::refusal([&] { train_lm(job); }, ErrorCategory::NotFound), HasSubstr("gone"));
  EXPECT_TRUE(fs::exists(job.out / "initial_model")) << "a refused run changes nothing";
  job.config.model.init = job.out / "model";
  EXPECT_THAT(test::error_of([&] { train_lm(job); }),
              HasSubstr("The output must not contain the input"));
  TrainLmJob plain = job_in("parts");
  plain.config.model = {
      .hidden_size = 16, .intermediate_size = 24, .layers = 1, .heads = 2, .context = 16};
  plain.config.data.tokenizer = "byte";
  plain.config.trainer.steps = 2;
  plain.fresh = true;
  train_lm(plain);
  EXPECT_FALSE(fs::exists(job.out / "initial_model")) << "of the run that was replaced";
}

TEST_F(FineTune, refuses_another_key_on_resume_before_it_reads_data_or_weights) {
  TrainLmJob job = fine_tuning("keys", first_.model);
  interrupt(job);
  job.config.data.path = folder_->path() / "nowhere.txt";
  set_config(job.config, "optim.beta1=0.5");
  EXPECT_THAT(test::refusal([&] { train_lm(job); }), HasSubstr("[optim.beta1] expected"));
}

TEST_F(FineTune, trains_on_windows_shorter_than_the_context_of_the_model) {
  TrainLmJob job = fine_tuning("windows", first_.model, 1);
  set_config(job.config, "data.window=8");
  set_log_level(LogLevel::Info);
  testing::internal::CaptureStderr();
  const TrainLmResult result = train_lm(job);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("step 1 of 1: 32 tokens in"));
  EXPECT_LT(said.find("memory: a step takes about"), said.find("tensors of"))
      << "before weights are loaded";
  EXPECT_EQ(model_io::open_model_or_throw(result.model)->architecture().context, 32);
  set_config(job.config, "data.window=33");
  job.fresh = true;
  EXPECT_THAT(test::refusal([&] { train_lm(job); }), HasSubstr("[data.window] expected"));
}

TEST_F(FineTune, refuses_a_step_that_does_not_fit_in_memory_before_it_begins) {
  TrainLmJob job = fine_tuning("huge", first_.model, 1);
  set_config(job.config, "trainer.micro_batch=1048576");
  EXPECT_THAT(test::refusal([&] { train_lm(job); }, ErrorCategory::Resource),
              HasSubstr("[trainer.micro_batch] expected at most"));
  EXPECT_FALSE(fs::exists(job.out / "train.toml"));
  const MemoryLmResult result = memory_lm({.config = job.config, .threads = 1});
  EXPECT_FALSE(result.measured);
  EXPECT_GT(result.predicted->total(), Index{1} << 37);
}

TEST_F(FineTune, trains_factored_layers_in_one_go_or_in_parts_to_the_same_bits) {
  const fs::path init = factored_model("thin");
  for (const bool recomputed : {false, true}) {
    const std::string name = recomputed ? "thin recomputed" : "thin whole";
    TrainLmJob job = fine_tuning(name, init, 20);
    job.config.trainer.ema_decay = 0.9;
    job.config.trainer.recompute_every = recomputed ? 1 : 0;
    const TrainLmResult whole = train_lm(job);
    job.out = folder_->path() / (name + " parts");
    interrupt(job);
    fs::rename(init, folder_->path() / "moved");  // a run that goes on does not need it
    const TrainLmResult parts = train_lm(job);
    fs::rename(folder_->path() / "moved", init);
    EXPECT_TRUE(weights_of(parts) == weights_of(whole));
    EXPECT_EQ(read_text_file(parts.model / "config.json"),
              read_text_file(whole.model / "config.json"));
    EXPECT_EQ(read_json_file(whole.model / "config.json")["factored_layers"],
              read_json_file(init / "config.json")["factored_layers"]);
    EXPECT_LT(whole.parameters, first_.parameters);
    EXPECT_LT(trainer::read_metrics(whole.out / "metrics.csv").back().loss,
              trainer::read_metrics(whole.out / "metrics.csv").front().loss);
    EXPECT_FALSE(weights_of(whole) == read_text_file(init / "model.safetensors"));
  }
  EXPECT_EQ(read_text_file(folder_->path() / "thin whole/model/model.safetensors"),
            read_text_file(folder_->path() / "thin recomputed/model/model.safetensors"));
}

TEST_F(FineTune, memory_report_counts_factored_layers) {
  const MemoryLmResult result =
      memory_lm({.config = fine_tuning("", factored_model("thin memory")).config, .threads = 1});
  EXPECT_LT(result.parameters, first_.parameters);
  ASSERT_TRUE(result.predicted.has_value());
  EXPECT_EQ(result.predicted->weights, result.measured->weights);
  EXPECT_EQ(result.predicted->state, result.measured->state);
}

TEST_F(FineTune, a_run_with_other_names_of_tensors_is_refused_in_one_sentence) {
  TrainLmJob job = fine_tuning("renamed", first_.out);
  interrupt(job);
  trainer::CheckpointStore store(job.out / "checkpoints");
  trainer::Checkpoint old = store.load(store.steps().back());
  for (NamedTensor& weight : old.weights) {
    if (weight.name == "layers.0.mlp.down_proj.weight") weight.name = "layer0.down";
  }
  store.clear();
  store.save(old, 1, std::nullopt);
  EXPECT_EQ(test::refusal([&] { train_lm(job); }),
            "[resume] The checkpoint has no tensor layers.0.mlp.down_proj.weight, so it is that of "
            "an earlier version of hone or of another model; --fresh starts again, and --init can "
            "start from the model of a finished run.");
}

TEST_F(FineTune, refuses_a_contradiction_before_it_writes_anything) {
  for (const char* setting : {"model.layers=3", "model.context=33", "data.tokenizer=byte"}) {
    TrainLmJob job = fine_tuning("refused", first_.out);
    set_config(job.config, setting);
    const std::string key = std::string(setting).substr(0, std::string(setting).find('='));
    EXPECT_THAT(test::refusal([&] { train_lm(job); }), HasSubstr("[" + key + "]"));
    EXPECT_FALSE(fs::exists(job.out));
  }
}

TEST_F(FineTune, says_how_many_tensors_were_loaded) {
  const LogLevel before = log_level();
  set_log_level(LogLevel::Info);
  testing::internal::CaptureStderr();
  train_lm(fine_tuning("said", gguf(model_io::StoreType::Q8_0), 1));
  set_log_level(before);
  // 2 layers of 9, the embedding, the last norm and the output matrix
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("model.init: 21 tensors of "));
}

TEST_F(FineTune, memory_report_is_that_of_the_model) {
  const MemoryLmResult result =
      memory_lm({.config = fine_tuning("", first_.out).config, .threads = 1});
  EXPECT_EQ(result.parameters, first_.parameters);
  ASSERT_TRUE(result.predicted.has_value());
  EXPECT_EQ(result.predicted->weights, result.measured->weights);
}

}  // namespace
}  // namespace hone::app
