// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/train_lm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>

#include "hone/app/torch/memory_lm.h"
#include "hone/app/torch/train_run.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/folder_lock.h"
#include "hone/core/file/json_io.h"
#include "hone/model_io/model_file.h"
#include "hone/train/trainer/checkpoint.h"
#include "hone/train/trainer/metrics_log.h"
#include "tests/support/error_of.h"
#include "tests/support/stop_flag.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

using testing::HasSubstr;

// A tiny model and a text in which the next letter is easy.
TrainLmJob tiny_job(const std::filesystem::path& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 3 == 0 ? "the cat sat.\n" : "a dog ran.\n";
  write_text_file(folder / "text.txt", text);
  TrainLmJob job;
  job.config.model = {
      .hidden_size = 16, .intermediate_size = 24, .layers = 1, .heads = 2, .context = 16};
  job.config.data.path = folder / "text.txt";
  job.config.data.tokenizer = "byte";
  job.config.lr.peak = 0.01;
  job.config.lr.warm_up_steps = 5;
  job.config.trainer.steps = 40;
  job.config.trainer.checkpoint_every = 10;
  job.config.trainer.validate_every = 0;
  job.out = folder / "run";
  job.threads = 1;
  return job;
}

TEST(TrainLm, refuses_a_device_that_is_not_there_and_leaves_nothing) {
  const test::TemporaryFolder folder;
  TrainLmJob job = tiny_job(folder.path());
  job.config.trainer.device = "cuda:63";
  const MemoryLmJob memory{.config = job.config, .threads = 1};
  for (const auto& message :
       {test::refusal([&] { train_lm(job); }, ErrorCategory::Unsupported),
        test::refusal([&] { memory_lm(memory); }, ErrorCategory::Unsupported)}) {
    EXPECT_THAT(message, HasSubstr("[trainer.device] expected a CUDA device"));
  }
  EXPECT_FALSE(std::filesystem::exists(job.out));
}

TEST(TrainLm, learns_and_exports_a_model_that_opens) {
  const test::TemporaryFolder folder;
  const TrainLmResult result = train_lm(tiny_job(folder.path()));
  EXPECT_EQ(result.steps, 40);
  const auto rows = trainer::read_metrics(result.out / "metrics.csv");
  ASSERT_EQ(rows.size(), 40u);
  EXPECT_NEAR(rows.front().loss, std::log(257.0) + 0.5, 0.3);
  EXPECT_LT(result.val_loss, 0.8 * rows.front().loss);
  EXPECT_NEAR(result.val_bits_per_byte, result.val_loss / std::log(2.0), 1e-9);
  const auto model = model_io::open_model_or_throw(result.model);
  EXPECT_EQ(model->format(), model_io::ModelFormat::HuggingFace);
  EXPECT_EQ(model->architecture().parameters(), result.parameters);
  EXPECT_EQ(model->architecture().context, 16);
  EXPECT_EQ(model->tokenizer()->vocab_size(), 257);
  EXPECT_EQ(model->tokenizer()->decode(model->tokenizer()->encode("the cat")), "the cat");
  for (const char* field :
       {"steps", "train_loss", "val_loss", "val_bits_per_byte", "tokens_per_s", "out"}) {
    EXPECT_TRUE(to_json(result).contains(field)) << field;
  }
}

TEST(TrainLm, trains_a_bpe_vocabulary_of_the_size_asked_for) {
  const test::TemporaryFolder folder;
  TrainLmJob job = tiny_job(folder.path());
  job.config.data.tokenizer = "bpe";
  job.config.data.vocab_size = 262;
  job.config.trainer.steps = 5;
  const TrainLmResult result = train_lm(job);
  const auto model = model_io::open_model_or_throw(result.model);
  EXPECT_EQ(model->tokenizer()->vocab_size(), 262);
  EXPECT_LT(result.val_bits_per_byte, result.val_loss / std::log(2.0))
      << "tokens hold several bytes";
}

TEST(TrainLm, resumes_after_an_interrupt_to_the_same_model) {
  const test::TemporaryFolder whole, parts;
  TrainLmJob job = tiny_job(whole.path());
  const TrainLmResult expected = train_lm(job);
  job = tiny_job(parts.path());
  const hone::test::StopFlag stop{true};  // after the first step
  job.stop = stop;
  EXPECT_THROW(train_lm(job), Error);
  job.stop = {};
  job.resume = true;
  const TrainLmResult result = train_lm(job);
  EXPECT_EQ(result.val_loss, expected.val_loss);
  EXPECT_EQ(result.train_loss, expected.train_loss);
  EXPECT_TRUE(read_text_file(result.model / "model.safetensors") ==
              read_text_file(expected.model / "model.safetensors"));
}

TEST(TrainLm, records_a_preset_with_what_it_stands_for_and_starts_and_resumes_from_that) {
  const test::TemporaryFolder whole, parts;
  const auto job_in = [](const test::TemporaryFolder& folder) {
    TrainLmJob job = tiny_job(folder.path());
    for (const char* set : {"optim.name=tam", "optim.preset=memory_limited", "lr.peak=0.1",
                            "optim.correlation_method=vectorized"}) {
      set_config(job.config, set);
    }
    return job;
  };
  const TrainLmResult expected = train_lm(job_in(whole));
  TrainLmJob job = job_in(parts);
  const hone::test::StopFlag stop{true};
  job.stop = stop;
  EXPECT_THROW(train_lm(job), Error);
  const std::string toml = read_text_file(job.out / "train.toml");
  for (const char* line : {"correlation_method = \"vectorized\"", "checked = true",
                           "state_dtype = \"bf16\"", "preset = \"memory_limited\""}) {
    EXPECT_THAT(toml, HasSubstr(line));
  }
  const test::TemporaryFolder again;
  for (const bool resume : {true, false}) {
    TrainLmJob from_record = tiny_job(resume ? parts.path() : again.path());
    from_record.config = {};
    read_config(from_record.config, job.out / "train.toml");
    from_record.resume = resume;
    const TrainLmResult result = train_lm(from_record);
    EXPECT_TRUE(read_text_file(result.model / "model.safetensors") ==
                read_text_file(expected.model / "model.safetensors"))
        << resume;
    EXPECT_EQ(read_text_file(from_record.out / "train.toml"), toml);
  }
}

TEST(TrainLm, a_finished_run_is_extended_to_the_bits_of_a_longer_one) {
  const test::TemporaryFolder whole, parts;
  const auto job_in = [](const test::TemporaryFolder& folder, Index steps) {
    TrainLmJob job = tiny_job(folder.path());
    job.config.lr.schedule = "constant";
    job.config.trainer.validate_every = 10;
    job.config.trainer.ema_decay = 0.9;
    job.config.trainer.steps = steps;
    return job;
  };
  const TrainLmResult expected = train_lm(job_in(whole, 40));
  train_lm(job_in(parts, 20));
  TrainLmJob job = job_in(parts, 40);
  job.resume = true;
  const TrainLmResult result = train_lm(job);
  EXPECT_EQ(result.steps, 40);
  EXPECT_EQ(result.val_loss, expected.val_loss);
  EXPECT_EQ(result.train_loss, expected.train_loss);
  EXPECT_TRUE(read_text_file(result.model / "model.safetensors") ==
              read_text_file(expected.model / "model.safetensors"));
  const auto rows = trainer::read_metrics(result.out / "metrics.csv"),
             want = trainer::read_metrics(expected.out / "metrics.csv");
  ASSERT_EQ(rows.size(), want.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].loss, want[i].loss) << i;
    EXPECT_EQ(rows[i].lr, want[i].lr) << i;
    EXPECT_EQ(rows[i].val_loss, want[i].val_loss) << i;
  }
  const auto facts_of = [](const TrainLmResult& of) {
    Json facts = trainer::CheckpointStore(of.out / "checkpoints").load_newest()->facts;
    facts.at("run").at("config").erase("data.path");
    return facts;
  };
  EXPECT_EQ(facts_of(result), facts_of(expected));
}

TEST(TrainLm, a_length_that_would_change_what_is_done_is_refused_with_the_reason) {
  const test::TemporaryFolder folder;
  TrainLmJob job = tiny_job(folder.path());  // a cosine
  const TrainLmResult before = train_lm(job);
  const std::string model = read_text_file(before.model / "model.safetensors");
  job.resume = true;
  job.config.trainer.steps = 80;
  const auto said = test::refusal([&] { train_lm(job); });
  EXPECT_EQ(
      said,
      "[trainer.steps] It cannot change from 40 to 80: with lr.schedule = cosine the learning "
      "rate of step 7, which is done, depends on it.");
  EXPECT_TRUE(read_text_file(before.model / "model.safetensors") == model);
  job.config.trainer.steps = 39;
  EXPECT_THAT(test::refusal([&] { train_lm(job); }), HasSubstr("[trainer.steps]"));
  job.config.trainer.steps = 40;
  EXPECT_EQ(train_lm(job).val_loss, before.val_loss);
}

TEST(TrainLm, refuses_to_resume_with_a_changed_key_or_text) {
  const test::TemporaryFolder folder;
  TrainLmJob job = tiny_job(folder.path());
  job.config.trainer.steps = 5;
  train_lm(job);
  job.resume = true;
  job.config.optim.beta2 = 0.9;
  const auto message = [&] {
    try {
      train_lm(job);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message(), HasSubstr("optim.beta2"));
  job = tiny_job(folder.path());
  job.config.trainer.steps = 5;
  job.resume = true;
  write_text_file(folder.path() / "text.txt", std::string(6000, 'x').append("\n"));
  EXPECT_THAT(message(), HasSubstr("data.path"));
}

TEST(TrainLm, fixes_the_number_of_steps_from_minutes_and_keeps_it_on_resume) {
  const test::TemporaryFolder folder;
  TrainLmJob job = tiny_job(folder.path());
  job.minutes = 0.005;
  const Index steps = train_lm(job).steps;
  EXPECT_GE(steps, 1);
  job.resume = true;
  job.minutes = 500;
  EXPECT_EQ(train_lm(job).steps, steps);
}

TEST(TrainLm, shortens_the_warm_up_of_a_run_of_few_minutes_unless_it_is_given) {
  const test::TemporaryFolder folder;
  for (const bool is_given : {false, true}) {
    TrainLmJob job = tiny_job(folder.path());
    job.fresh = true;
    job.minutes = 1e-9;
    job.min_steps = 20;
    if (is_given) set_config(job.config, "lr.warm_up_steps=19");
    train_lm(job);
    EXPECT_THAT(read_text_file(job.out / "train.toml"),
                HasSubstr(is_given ? "warm_up_steps = 19" : "warm_up_steps = 2\n"));
  }
}

TEST(TrainLm, keeps_the_steps_of_its_minutes_within_their_bounds) {
  const test::TemporaryFolder folder;
  TrainLmJob job = tiny_job(folder.path());
  job.minutes = 1e-9;
  job.min_steps = 7;
  EXPECT_EQ(train_lm(job).steps, 7);
  job.minutes = 500;
  job.max_steps = 9;
  job.fresh = true;
  EXPECT_EQ(train_lm(job).steps, 9);
}

// The error's category and sentence; none when it trains.
std::pair<ErrorCategory, std::string> refusal_of(const TrainLmJob& job) {
  try {
    train_lm(job);
  } catch (const Error& error) {
    return {error.category(), error.what()};
  }
  return {ErrorCategory::Internal, "trained"};
}

TEST(TrainLm, minutes_without_time_for_a_step_are_refused_and_leave_nothing) {
  const test::TemporaryFolder folder;
  TrainLmJob job = tiny_job(folder.path());
  for (const double minutes : {1e-9, 1e300, -1.0, std::nan(""), HUGE_VAL}) {
    job.minutes = minutes;
    const auto [category, message] = refusal_of(job);
    EXPECT_EQ(category, ErrorCategory::InvalidArgument) << minutes;
    EXPECT_THAT(message, HasSubstr("minutes")) << minutes;
    EXPECT_LT(message.size(), 200u) << message;
  }
  EXPECT_FALSE(std::filesystem::exists(job.out));
}

TEST(TrainLm, text_that_cannot_be_read_leaves_no_folder) {
  const test::TemporaryFolder folder;
  TrainLmJob job = tiny_job(folder.path());
  job.config.data.path = folder.path() / "none";
  job.out = folder.path() / "deep" / "run";
  EXPECT_EQ(refusal_of(job).first, ErrorCategory::NotFound);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "deep"));
}

TEST(TrainLm, an_earlier_run_is_kept_resumed_or_replaced_as_asked) {
  const test::TemporaryFolder folder;
  TrainLmJob job = tiny_job(folder.path());
  job.config.trainer.steps = 5;
  job.resume = true;
  EXPECT_EQ(refusal_of(job).first, ErrorCategory::NotFound);
  EXPECT_FALSE(std::filesystem::exists(job.out));
  job.resume = false;
  std::filesystem::create_directories(job.out / "model");
  write_text_file(job.out / "model" / "config.json", "{}");
  EXPECT_EQ(refusal_of(job).first, ErrorCategory::InvalidArgument) << "a model of somebody's";
  std::filesystem::remove_all(job.out);
  train_lm(job);
  const std::string metrics = read_text_file(job.out / "metrics.csv");
  job.config.trainer.steps = 3;
  const auto [category, message] = refusal_of(job);
  EXPECT_EQ(category, ErrorCategory::InvalidArgument);
  for (const char* word : {"--resume", "--fresh", "--out"}) EXPECT_THAT(message, HasSubstr(word));
  EXPECT_EQ(read_text_file(job.out / "metrics.csv"), metrics);
  job.fresh = true;
  EXPECT_EQ(train_lm(job).steps, 3);
  EXPECT_EQ(trainer::read_metrics(job.out / "metrics.csv").size(), 3u);
  EXPECT_FALSE(std::filesystem::exists(job.out / ".lock"));
}

TEST(TrainLm, a_folder_that_another_run_works_in_is_refused_and_left_alone) {
  const test::TemporaryFolder folder;
  const TrainLmJob job = tiny_job(folder.path());
  {
    const FolderLock other(job.out);
    const auto [category, message] = refusal_of(job);
    EXPECT_EQ(category, ErrorCategory::Resource);
    EXPECT_THAT(message, HasSubstr(job.out.string()));
    EXPECT_FALSE(holds_run(job.out));
  }
  EXPECT_EQ(train_lm(job).steps, 40);
}

TEST(TrainLm, refuses_bad_configuration_before_it_writes_anything) {
  const test::TemporaryFolder folder;
  TrainLmJob job = tiny_job(folder.path());
  job.config.model.heads = 3;
  EXPECT_THROW(train_lm(job), Error);
  EXPECT_FALSE(std::filesystem::exists(job.out));
}

}  // namespace
}  // namespace hone::app
