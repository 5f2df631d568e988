// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/eval_vision.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hone/app/torch/train_vision.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/task/vision/metrics/feature_metrics.h"
#include "hone/train/task/vision/vision_model.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Models of 12 x 12 pictures of a bar in one of four rows, trained for a moment.
class EvalVision : public testing::Test {
 protected:
  EvalVision() { set_log_level(LogLevel::Error); }
  TrainVisionJob job_of(const char* model, const char* out) const {
    TrainVisionJob job;
    job.config.model = {.name = model, .width = 8};
    job.config.data.path = data_;
    job.config.lr.warm_up_steps = 2;
    job.config.trainer.steps = 8;
    job.config.trainer.micro_batch = 20;
    job.out = folder_.path() / out;
    job.fresh = true;
    job.threads = 1;
    return job;
  }
  TrainVisionResult train(const char* model, const char* out = "run", Index steps = 8) const {
    test::write_bar_folder(data_, 12, 4, 200, 40);
    TrainVisionJob job = job_of(model, out);
    job.config.trainer.steps = steps;
    return train_vision(job);
  }
  VisionEvalOptions options_of(const TrainVisionResult& trained) const {
    VisionEvalOptions options;
    options.model = trained.model;
    options.data = data_;
    options.threads = 1;
    return options;
  }
  // Images of 12 x 12 in color with the bar in a row.
  void write_pictures(const std::string& name, Index row, int count) const {
    for (int i = 0; i < count; ++i) {
      std::string pixels;
      for (const char c : test::bar_picture(12, row, static_cast<std::uint64_t>(i))) {
        pixels += std::string(3, c);
      }
      test::write_bytes(folder_.path() / "pictures" / name / (std::to_string(i) + ".ppm"),
                        test::ppm_file(12, 12, pixels));
    }
  }

  test::TemporaryFolder folder_;
  std::string data_ = (folder_.path() / "data").string();
};

TEST_F(EvalVision, measures_what_training_measured_on_the_same_images) {
  for (const char* model : {"mlp", "cnn", "resnet20", "resnet18"}) {
    const TrainVisionResult trained = train(model);
    const VisionCard card = evaluate_vision(options_of(trained));
    EXPECT_EQ(card.images, 40);
    EXPECT_EQ(card.accuracy, trained.val_accuracy) << model;
    EXPECT_NEAR(card.loss, trained.val_loss, 1e-5 * trained.val_loss) << model;
    Index images = 0, right = 0;
    double recalls = 0;
    for (const ClassAccuracy& own : card.classes) {
      images += own.images;
      right += own.right;
      recalls += static_cast<double>(own.right) / static_cast<double>(own.images);
    }
    EXPECT_EQ(images, 40);
    EXPECT_EQ(static_cast<double>(right) / 40, card.accuracy);
    EXPECT_NEAR(card.balanced_accuracy, recalls / 4, 1e-12);
    EXPECT_EQ(card.top5_accuracy, 1) << "there are four classes";
    Index binned = 0, confused = 0;
    for (const task::CalibrationBin& bin : card.reliability) binned += bin.images;
    for (const auto& pair : card.confused) confused += pair.images;
    EXPECT_EQ(card.reliability.size(), 15u);
    EXPECT_EQ(binned, 40);
    EXPECT_EQ(confused, 40 - right) << "four classes have fewer than ten pairs that occur";
    const bool has_features = std::string(model).starts_with("resnet");
    EXPECT_EQ(card.neighbor_accuracy.has_value(), has_features) << model;
    EXPECT_EQ(card.fisher_ratio.has_value(), has_features) << model;
    EXPECT_EQ(to_json(card).at("fisher_ratio").is_null(), !has_features);
  }
}

TEST_F(EvalVision, all_images_are_those_of_training_and_those_held_out) {
  VisionEvalOptions options = options_of(train("mlp"));
  const VisionCard held_out = evaluate_vision(options);
  options.all = true;
  options.baseline = options.model;
  const VisionCard all = evaluate_vision(options);
  ASSERT_EQ(all.images, 240);
  EXPECT_EQ(all.comparison->difference, 0);
  // The sum over all images is that over both parts.
  const double rest = 240 * all.loss - 40 * held_out.loss;
  EXPECT_GT(rest, 0);
  Index images = 0, right = 0;
  for (std::size_t i = 0; i < all.classes.size(); ++i) {
    images += all.classes[i].images;
    right += all.classes[i].right;
    EXPECT_GE(all.classes[i].right, held_out.classes[i].right);
  }
  EXPECT_EQ(images, 240);
  EXPECT_NEAR(all.accuracy, static_cast<double>(right) / 240, 1e-12);
}

// One image at a time by the module itself.
TEST_F(EvalVision, takes_features_from_the_mean_of_the_last_map) {
  const TrainVisionResult trained = train("resnet20");
  VisionEvalOptions options = options_of(trained);
  options.neighbors = 3;
  const VisionCard card = evaluate_vision(options);
  task::VisionModel model = task::read_vision_model(trained.model);
  auto& net = dynamic_cast<nn::ResNetImpl&>(*model.net);
  net.eval();
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> rows;
  std::vector<Index> labels;
  for (Index i = 0; i < 40; ++i) {
    const std::string pixels = test::bar_picture(12, i % 4 * 3, 1'000'000 + i);
    torch::Tensor image = at::empty({1, 1, 12, 12});
    for (Index j = 0; j < 144; ++j) {
      const auto value = static_cast<unsigned char>(pixels[static_cast<std::size_t>(j)]);
      image.view(-1)[j] = (value / 255.0 - model.stats.mean[0]) / model.stats.std[0];
    }
    rows.push_back(net.forward_features(image).mean({2, 3}));
    labels.push_back(i % 4);
  }
  const torch::Tensor features = at::cat(rows);
  const double ratio = task::fisher_ratio(features, labels).value();
  EXPECT_NEAR(*card.fisher_ratio, ratio, 1e-3 * ratio);
  EXPECT_NEAR(*card.neighbor_accuracy, *task::neighbor_accuracy(features, labels, 3), 0.051)
      << "rounding may turn a neighbor around";
}

TEST_F(EvalVision, asks_at_most_all_other_images_as_neighbors) {
  const TrainVisionResult trained = train("resnet20");
  VisionEvalOptions options = options_of(trained);
  options.neighbors = 39;
  const VisionCard all = evaluate_vision(options);
  options.neighbors = 1'000'000'000;
  const VisionCard more = evaluate_vision(options);
  EXPECT_EQ(more.neighbors, 39);
  EXPECT_EQ(more.neighbor_accuracy, all.neighbor_accuracy);
}

TEST_F(EvalVision, a_part_of_the_classes_is_measured_by_name_an_unknown_one_refused) {
  write_pictures("top", 1, 20), write_pictures("middle", 5, 20), write_pictures("bottom", 9, 20);
  const fs::path pictures = folder_.path() / "pictures";
  TrainVisionJob job = job_of("mlp", "run");
  job.config.model.width = 16;
  job.config.data.path = pictures.string();
  job.config.data.image_size = 12;
  job.config.trainer.steps = 30;
  const TrainVisionResult trained = train_vision(job);
  ASSERT_EQ(trained.val_accuracy, 1);
  VisionEvalOptions options = options_of(trained);
  options.data = pictures.string();
  fs::remove_all(pictures / "middle");  // "top" is now the second of two
  const VisionCard part = evaluate_vision(options);
  EXPECT_EQ(part.accuracy, 1);
  EXPECT_EQ(part.balanced_accuracy, 1) << "over the classes that occur";
  EXPECT_EQ(part.images, 4) << "every tenth is held out";
  EXPECT_EQ(part.classes.size(), 2u);
  write_pictures("sideways", 1, 20);
  EXPECT_THAT(test::error_of([&] { evaluate_vision(options); }), HasSubstr("sideways"));
  test::write_bar_folder(folder_.path() / "gray", 12, 3, 30, 10);
  options.data = (folder_.path() / "gray").string();
  EXPECT_THAT(test::error_of([&] { evaluate_vision(options); }), HasSubstr("3 x 12 x 12"));
}

TEST_F(EvalVision, compares_with_a_baseline_image_by_image) {
  const TrainVisionResult good = train("mlp", "good", 60), bad = train("mlp", "bad", 3);
  VisionEvalOptions options = options_of(good);
  options.baseline = bad.model;
  const VisionCard card = evaluate_vision(options);
  ASSERT_TRUE(card.comparison);
  const VisionComparison& found = *card.comparison;
  EXPECT_EQ(found.accuracy, bad.val_accuracy);
  EXPECT_NEAR(found.difference, good.val_accuracy - bad.val_accuracy, 1e-12);
  EXPECT_LT(found.low, found.difference);
  EXPECT_GT(found.high, found.difference);
  const VisionCard again = evaluate_vision(options);
  EXPECT_EQ(again.comparison->low, found.low) << "the same seed";
  options.baseline = good.model;
  const VisionComparison same = *evaluate_vision(options).comparison;
  EXPECT_EQ(same.difference, 0);
  EXPECT_EQ(same.low, 0);
  EXPECT_EQ(same.high, 0);
  options.baseline = folder_.path() / "none";
  EXPECT_THROW(evaluate_vision(options), Error);
}

TEST_F(EvalVision, a_baseline_of_another_size_reads_the_images_again) {
  write_pictures("top", 1, 20), write_pictures("bottom", 9, 20);
  const std::string pictures = (folder_.path() / "pictures").string();
  const auto trained = [&](const char* out, Index size) {
    TrainVisionJob job = job_of("mlp", out);
    job.config.data.path = pictures;
    job.config.data.image_size = size;
    return train_vision(job);
  };
  const TrainVisionResult small = trained("small", 6), large = trained("large", 12);
  VisionEvalOptions options = options_of(large);
  options.data = pictures;
  options.baseline = small.model;
  EXPECT_EQ(evaluate_vision(options).comparison->accuracy, small.val_accuracy);
}

class EvalLeaves : public EvalVision {
 protected:
  TrainVisionResult train_on_leaves(const char* out, Index classes, Index seed) const {
    TrainVisionJob job = job_of("resnet20", out);
    job.config.data.path = "leaves";
    job.config.data.leaves = {
        .classes = classes, .size = 32, .train = 4, .val = 3, .test = 0, .seed = seed};
    job.config.trainer.steps = 3;
    job.config.trainer.micro_batch = 8;
    return train_vision(job);
  }
};

TEST_F(EvalLeaves, are_those_of_the_training) {
  const TrainVisionResult trained = train_on_leaves("run", 4, 7);
  VisionEvalOptions options = options_of(trained);
  options.data = "leaves";
  const VisionCard card = evaluate_vision(options);
  EXPECT_EQ(card.images, 12);
  EXPECT_EQ(card.accuracy, trained.val_accuracy);
  EXPECT_NEAR(card.loss, trained.val_loss, 1e-5 * trained.val_loss);
  options.all = true;
  EXPECT_EQ(evaluate_vision(options).images, 4 * (4 + 3));
  options.all = false;
  options.baseline = train_on_leaves("other", 4, 8).model;
  EXPECT_TRUE(evaluate_vision(options).comparison);
  options.baseline = train_on_leaves("more", 5, 7).model;
  EXPECT_THAT(test::error_of([&] { evaluate_vision(options); }),
              HasSubstr("4 classes of leaves of 32 pixels a side, got 5 classes"));
}

TEST_F(EvalLeaves, are_refused_for_a_model_that_was_not_trained_on_them) {
  VisionEvalOptions options = options_of(train("mlp"));
  options.data = "leaves";
  EXPECT_THAT(test::error_of([&] { evaluate_vision(options); }), HasSubstr("not say that it was"));
}

TEST_F(EvalLeaves, the_report_shows_parts_and_spares_what_exists) {
  const TrainVisionResult trained = train_on_leaves("run", 4, 7);
  task::VisionModel model = task::read_vision_model(trained.model);
  model.parts =
      task::PartSpec{.stage = nn::ResNetImpl::Stage::Last, .sampler = {.parts = 3, .window = 3}};
  write_vision_model(trained.model, model);
  VisionEvalOptions options = options_of(trained);
  options.data = "leaves";
  options.report = folder_.path() / "report.html";
  const VisionCard card = evaluate_vision(options);
  const std::string html = read_text_file(options.report);
  EXPECT_THAT(html, HasSubstr("data:image/png;base64,"));
  EXPECT_THAT(html, HasSubstr("class=\"box-name\""));
  EXPECT_THAT(html, HasSubstr("Confusion matrix"));
  EXPECT_THAT(html, HasSubstr("leaf_03"));
  EXPECT_EQ(evaluate_vision(options).loss, card.loss) << "a report may be replaced";
  for (const fs::path& path :
       {folder_.path(), trained.model / "config.json", folder_.path() / "absent" / "report.html"}) {
    options.report = path;
    EXPECT_THROW(evaluate_vision(options), Error) << path;
  }
  EXPECT_TRUE(task::read_vision_model(trained.model).parts) << "as before";
}

}  // namespace
}  // namespace hone::app
