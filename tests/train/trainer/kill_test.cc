// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "hone/core/file/file_io.h"
#include "hone/core/philox.h"
#include "hone/train/task/lm/lm_setup.h"
#include "hone/train/task/lm/lm_task.h"
#include "hone/train/trainer/metrics_log.h"
#include "hone/train/trainer/schedule.h"
#include "hone/train/trainer/trainer.h"
#include "tests/support/test_data.h"

namespace hone::trainer {
namespace {

namespace fs = std::filesystem;

constexpr Index kSteps = 200;
constexpr int kKills = 30;
constexpr const char* kFolderVariable = "HONE_TEST_KILL_FOLDER";

// A tiny language model on a pattern of tokens, resumed where a checkpoint is.
void run_training(const fs::path& folder) {
  at::set_num_threads(1);  // two would spin against each other on a busy machine
  task::LmConfig config;
  config.model = {
      .hidden_size = 16, .intermediate_size = 24, .layers = 1, .heads = 2, .context = 8};
  config.lr.peak = 0.01;
  config.lr.warm_up_steps = 10;
  config.trainer.steps = kSteps;
  std::vector<text::TokenId> tokens;
  for (Index i = 0; i < 3000; ++i) tokens.push_back(static_cast<text::TokenId>(i * i % 29));
  nn::Llama model(task::make_architecture(config, 29), 3);
  task::LmTask task(model, task::TokenWindows(tokens, 8, 3),
                    {{tokens, {3000}}, std::vector<Index>(29, 1)}, 4, 2, 256);
  const auto optimizer = make_optimizer(config, *model);
  const auto scheduler = make_schedule(config.lr, config.trainer.steps, *optimizer);
  TrainerOptions options;
  options.steps = kSteps;
  options.accumulation_steps = 2;
  options.clip_norm = 1;
  options.validate_every = 20;
  options.checkpoint_every = 7;
  options.folder = folder;
  Trainer trainer(options);
  trainer.resume(task, *optimizer, *scheduler);
  const std::stop_token go_on;
  trainer.fit(task, *optimizer, *scheduler, go_on);
}

// What the test below starts as a program of its own.
TEST(KilledRun, DISABLED_child) {
  const char* folder = std::getenv(kFolderVariable);
  ASSERT_NE(folder, nullptr) << "run by KilledRunTest";
  run_training(folder);
}

pid_t start_child(const fs::path& folder) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setenv(kFolderVariable, folder.c_str(), 1);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  ::execl("/proc/self/exe", "test", "--gtest_filter=KilledRun.DISABLED_child",
          "--gtest_also_run_disabled_tests", nullptr);
  ::_exit(127);
}

Index rows_written(const fs::path& folder) {
  const fs::path path = folder / "metrics.csv";
  if (!fs::exists(path)) return 0;
  const std::string text = read_text_file(path);
  return std::count(text.begin(), text.end(), '\n') - 1;
}

// Kills once the log has grown to `rows`, after a moment; false when the child ended before that.
bool kill_after(pid_t child, const fs::path& folder, Index rows, int microseconds) {
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (rows_written(folder) >= rows) {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return true;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return false;
}

void expect_same_tensors(const std::vector<CheckpointTensor>& got,
                         const std::vector<CheckpointTensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    ASSERT_EQ(got[i].value.nbytes(), want[i].value.nbytes()) << got[i].name;
    EXPECT_EQ(
        std::memcmp(got[i].value.data_ptr(), want[i].value.data_ptr(), want[i].value.nbytes()), 0)
        << got[i].name;
  }
}

// Losses, weights and state.
void expect_same_run(const fs::path& parts, const fs::path& whole) {
  const auto rows = read_metrics(parts / "metrics.csv"), want = read_metrics(whole / "metrics.csv");
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(kSteps));
  ASSERT_EQ(want.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].step, want[i].step);
    EXPECT_EQ(rows[i].loss, want[i].loss) << "row " << i;
    EXPECT_EQ(rows[i].grad_norm, want[i].grad_norm) << "row " << i;
    EXPECT_EQ(rows[i].val_loss, want[i].val_loss) << "row " << i;
  }
  const Checkpoint got = CheckpointStore(parts / "checkpoints").load(kSteps);
  const Checkpoint expected = CheckpointStore(whole / "checkpoints").load(kSteps);
  expect_same_tensors(got.weights, expected.weights);
  expect_same_tensors(got.state, expected.state);
}

void resume_to_the_end(const fs::path& folder) {
  int status = 0;
  const pid_t last = start_child(folder);
  ASSERT_EQ(::waitpid(last, &status, 0), last);
  ASSERT_EQ(status, 0) << "the last resume failed";
}

class KilledRunTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    whole_ = std::make_unique<test::TemporaryFolder>();
    run_training(whole_->path());
  }
  static void TearDownTestSuite() { whole_.reset(); }

  static std::unique_ptr<test::TemporaryFolder> whole_;  // the uninterrupted run
};
std::unique_ptr<test::TemporaryFolder> KilledRunTest::whole_;

TEST_F(KilledRunTest, 100_steps_a_kill_and_the_rest_give_the_bytes_of_200_steps) {
  const test::TemporaryFolder parts;
  const pid_t child = start_child(parts.path());
  ASSERT_GT(child, 0);
  ASSERT_TRUE(kill_after(child, parts.path(), kSteps / 2, 0));
  resume_to_the_end(parts.path());
  expect_same_run(parts.path(), whole_->path());
}

TEST_F(KilledRunTest, thirty_kills_at_random_times_leave_a_loadable_checkpoint_each) {
  const test::TemporaryFolder parts;
  PhiloxStream random(11);
  int kills = 0;
  Index step = -1;  // of the newest checkpoint
  for (Index rows = 1; kills < kKills; ++kills) {
    rows = std::min(rows + 1 + random.below(2 * kSteps / kKills - 3), kSteps - 1);
    const pid_t child = start_child(parts.path());
    ASSERT_GT(child, 0);
    if (!kill_after(child, parts.path(), rows, static_cast<int>(random.below(4000)))) break;
    // Looked at in a copy: what the kill left behind is the next child's to clear.
    const test::TemporaryFolder copy;
    fs::copy(parts.path(), copy.path(), fs::copy_options::recursive);
    testing::internal::CaptureStderr();
    const auto newest = CheckpointStore(copy.path() / "checkpoints").load_newest();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "no checkpoint is damaged";
    ASSERT_TRUE(newest.has_value() || rows < 7) << rows;
    if (newest) {
      EXPECT_GE(newest->step, step);
      step = newest->step;
    }
  }
  EXPECT_EQ(kills, kKills) << "children ended before they were killed";
  resume_to_the_end(parts.path());
  expect_same_run(parts.path(), whole_->path());
}

}  // namespace
}  // namespace hone::trainer
