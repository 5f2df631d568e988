// SPDX-License-Identifier: Apache-2.0
// Language models and classifiers that learn from a teacher.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hone/app/torch/train_lm.h"
#include "hone/app/torch/train_vision.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/train/surgery/evaluation_scope.h"
#include "hone/train/task/vision/vision_model.h"
#include "hone/train/task/vision/vision_teacher.h"
#include "hone/train/trainer/metrics_log.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The losses of all steps are α · soft + (1 − α) · ce.
void expect_terms(const fs::path& out, double alpha) {
  for (const trainer::MetricsRow& row : trainer::read_metrics(out / "metrics.csv")) {
    ASSERT_TRUE(row.soft && row.ce) << row.step;
    EXPECT_NEAR(row.loss, alpha * *row.soft + (1 - alpha) * *row.ce, 1e-5 * row.loss);
  }
}

class DistillLm : public testing::Test {
 protected:
  DistillLm() { set_log_level(LogLevel::Error); }
  TrainLmJob job_of(const char* out, const std::vector<std::string>& settings = {}) const {
    TrainLmJob job{.config = {}, .out = folder_.path() / out, .threads = 1};
    for (const char* one :
         {"model.hidden_size=32", "model.intermediate_size=48", "model.layers=2", "model.heads=2",
          "model.context=32", "data.vocab_size=300", "data.stories=60", "data.held_out_stories=6",
          "lr.warm_up_steps=2", "trainer.steps=12", "trainer.micro_batch=4",
          "trainer.validate_every=6", "trainer.checkpoint_every=6"}) {
      set_config(job.config, one);
    }
    for (const std::string& one : settings) set_config(job.config, one);
    return job;
  }
  TrainLmJob student_of(const char* out, const fs::path& teacher,
                        const std::vector<std::string>& settings = {}) const {
    std::vector<std::string> all{"model.layers=1", "distill.teacher=" + teacher.string()};
    all.insert(all.end(), settings.begin(), settings.end());
    TrainLmJob job = job_of(out, all);
    job.config.given.erase("data.vocab_size");  // the teacher has the tokens
    return job;
  }
  static std::string weights(const fs::path& model) {
    return read_text_file(model / "model.safetensors");
  }

  test::TemporaryFolder folder_;
};

TEST_F(DistillLm, learns_and_is_compared_with_itself_alone) {
  const TrainLmResult teacher = train_lm(job_of("teacher"));
  const std::string before = weights(teacher.model);
  const TrainLmResult student = train_lm(student_of("student", teacher.model));
  EXPECT_EQ(weights(teacher.model), before);
  ASSERT_TRUE(student.distillation && student.distillation->control);
  const Distillation& learned = *student.distillation;
  EXPECT_EQ(learned.teacher_parameters, teacher.parameters);
  EXPECT_EQ(learned.parameters, student.parameters);
  EXPECT_GT(learned.ratio(), 1);
  expect_terms(folder_.path() / "student", 0.7);
  const auto rows = trainer::read_metrics(folder_.path() / "student" / "metrics.csv");
  double last = 0;
  for (std::size_t i = rows.size() - 10; i < rows.size(); ++i) last += rows[i].loss / 10;
  EXPECT_NEAR(*learned.final_loss, last, 1e-9);

  const TrainLmResult plain = train_lm(job_of("plain", {"model.layers=1"}));
  EXPECT_EQ(weights(learned.control->model), weights(plain.model)) << "the control is plain";
  EXPECT_EQ(learned.control->val_loss, plain.val_loss);
  EXPECT_NE(weights(student.model), weights(plain.model));
}

TEST_F(DistillLm, a_copy_of_the_teacher_agrees_and_has_nothing_to_learn) {
  const fs::path teacher = train_lm(job_of("teacher")).model;
  TrainLmJob job = job_of("copy", {"model.init=" + teacher.string(), "lr.peak=1e-12",
                                   "distill.teacher=" + teacher.string(), "distill.control=false",
                                   "trainer.steps=2", "lr.warm_up_steps=1"});
  for (const char* key : {"data.vocab_size"}) job.config.given.erase(key);
  const TrainLmResult copy = train_lm(job);
  EXPECT_EQ(copy.distillation->agreement, 1);
  EXPECT_NEAR(*copy.distillation->final_soft, 0, 1e-5);
  EXPECT_FALSE(copy.distillation->control);
}

TEST_F(DistillLm, goes_on_to_the_same_model_with_its_control) {
  const fs::path teacher = train_lm(job_of("teacher")).model;
  const auto constant = [&](const char* out, const char* steps) {
    return student_of(out, teacher, {"lr.schedule=constant", steps});
  };
  const TrainLmResult whole = train_lm(constant("whole", "trainer.steps=12"));
  train_lm(constant("parts", "trainer.steps=6"));
  TrainLmJob more = constant("parts", "trainer.steps=12");
  more.resume = true;
  const TrainLmResult resumed = train_lm(more);
  EXPECT_EQ(weights(resumed.model), weights(whole.model));
  EXPECT_EQ(weights(resumed.distillation->control->model),
            weights(whole.distillation->control->model));
}

TEST_F(DistillLm, refuses_a_teacher_that_does_not_fit) {
  const fs::path teacher = train_lm(job_of("teacher")).model;
  const fs::path other =
      train_lm(job_of("other", {"data.vocab_size=310", "model.context=16"})).model;
  const auto refusal = [](const TrainLmJob& job) { return test::error_of([&] { train_lm(job); }); };
  EXPECT_THAT(refusal(student_of("s", folder_.path() / "nowhere")), HasSubstr("nowhere"));
  EXPECT_THAT(refusal(student_of("s", other)), HasSubstr("data.window"));
  TrainLmJob both = student_of("s", other, {"model.init=" + teacher.string(), "data.window=16"});
  both.config.given.erase("model.layers");
  EXPECT_THAT(refusal(both), HasSubstr("tokens of model.init"));
  EXPECT_THAT(refusal(student_of("s", teacher, {"distill.alpha=1.5"})), HasSubstr("distill.alpha"));
  TrainLmJob into = student_of("teacher", teacher);
  into.fresh = true;
  EXPECT_THAT(refusal(into), HasSubstr("teacher"));
  EXPECT_FALSE(fs::exists(folder_.path() / "s" / "model"));
}

class DistillVision : public testing::Test {
 protected:
  DistillVision() {
    set_log_level(LogLevel::Error);
    test::write_bar_folder(data_, 12, 4, 200, 40);
  }
  TrainVisionJob job_of(const char* model, const char* out) const {
    TrainVisionJob job;
    job.config.model = {.name = model, .width = 8};
    job.config.data.path = data_;
    job.config.lr.warm_up_steps = 2;
    job.config.trainer.steps = 20;
    job.config.trainer.micro_batch = 20;
    job.out = folder_.path() / out;
    job.threads = 1;
    return job;
  }

  test::TemporaryFolder folder_;
  std::string data_ = (folder_.path() / "data").string();
};

TEST_F(DistillVision, learns_and_is_compared_with_itself_alone) {
  const TrainVisionResult teacher = train_vision(job_of("resnet20", "teacher"));
  TrainVisionJob job = job_of("mlp", "student");
  job.config.distill.teacher = (folder_.path() / "teacher").string();
  const TrainVisionResult student = train_vision(job);
  ASSERT_TRUE(student.distillation && student.distillation->control);
  const Distillation& learned = *student.distillation;
  EXPECT_EQ(learned.teacher_parameters, teacher.parameters);
  expect_terms(job.out, 0.7);
  const TrainVisionResult plain = train_vision(job_of("mlp", "plain"));
  EXPECT_EQ(learned.control->val_accuracy, plain.val_accuracy);
  EXPECT_NEAR(learned.control->val_loss, plain.val_loss, 1e-5 * plain.val_loss);
  const Json json = to_json(student);
  EXPECT_EQ(json["distillation"]["parameter_ratio"], learned.ratio());
  EXPECT_EQ(json["distillation"]["control"]["val_accuracy"], plain.val_accuracy);
  EXPECT_TRUE(to_json(plain)["distillation"].is_null());
}

// A teacher with its own order of classes and its own normalization sees the same images.
TEST_F(DistillVision, teacher_takes_images_and_classes_as_the_student_has_them) {
  const fs::path folder = train_vision(job_of("resnet20", "teacher")).model;
  const task::VisionModel model = task::read_vision_model(folder);
  std::vector<std::string> classes(model.classes.rbegin(), model.classes.rend());
  const task::ChannelStats stats{.mean = {0.4}, .std = {0.7}};
  const task::VisionTeacher teacher(folder, classes, {1, 12, 12}, stats, at::kCPU);
  torch::manual_seed(4);
  const at::Tensor pixels = at::rand({6, 1, 12, 12});
  const at::NoGradGuard no_grad;
  const nn::EvaluationScope evaluation(*model.net.ptr());
  const at::Tensor want =
      model.net.ptr()->forward((pixels - model.stats.mean[0]) / model.stats.std[0]).flip(1);
  const at::Tensor got = teacher.logits((pixels - 0.4) / 0.7);
  EXPECT_TRUE(at::allclose(got, want, 1e-4, 1e-4));
}

TEST_F(DistillVision, refuses_a_teacher_that_does_not_fit) {
  const fs::path teacher = train_vision(job_of("mlp", "teacher")).model;
  const auto refusal = [&](TrainVisionJob job) {
    job.config.distill.teacher = teacher.string();
    return test::error_of([&] { train_vision(job); });
  };
  TrainVisionJob cut = job_of("mlp", "s");
  cut.config.augment.side = 8;
  EXPECT_THAT(refusal(cut), HasSubstr("images of 1 x 8 x 8"));
  TrainVisionJob supcon = job_of("resnet20", "s");
  supcon.config.loss.method = "supcon";
  EXPECT_THAT(refusal(supcon), HasSubstr("loss.method"));
  EXPECT_THAT(test::error_of([&] {
                task::VisionTeacher(teacher, {"other", "0"}, {1, 12, 12}, {{0.5}, {0.5}}, at::kCPU);
              }),
              HasSubstr("class other"));
}

}  // namespace
}  // namespace hone::app
