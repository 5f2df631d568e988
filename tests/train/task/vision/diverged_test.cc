// SPDX-License-Identifier: Apache-2.0
// Part contrast in a network whose features are not finite.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/core/log.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/task/vision/vision_setup.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::task {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Diverged : public testing::Test {
 protected:
  Diverged() {
    set_log_level(LogLevel::Error);
    test::write_bar_folder(folder_.path(), 12, 4, 60, 12);
  }
  // How a run of part contrast ends where the weights whose names begin with `prefix` are `value`.
  std::string end_of(const char* prefix, double value, const std::vector<std::string>& settings,
                     bool skips) const {
    VisionConfig config = part_contrast_config();
    config.data.path = folder_.path().string();
    config.trainer.micro_batch = 20;
    config.model.width = 8;
    for (const std::string& setting : settings) set_config(config, setting);
    config = apply_preset(config);
    check_config(config);
    const VisionSetup setup = set_up_vision(config);
    for (const auto& item : setup.task->objective().module().named_parameters()) {
      const torch::NoGradGuard no_grad;
      if (item.key().starts_with(prefix)) item.value().detach().fill_(value);
    }
    const auto optimizer = make_optimizer(config, setup);
    optim::ExponentialLR scheduler(*optimizer, 1);
    const test::TemporaryFolder out;
    trainer::TrainerOptions options;
    options.steps = 5;
    options.folder = out.path();
    options.amp.skip_nonfinite = skips;
    options.amp.max_skipped_steps = 2;
    return test::refusal(
        [&] {
          trainer::Trainer(options).fit(*setup.task, *optimizer, scheduler, std::stop_token{});
        },
        ErrorCategory::Internal);
  }

  test::TemporaryFolder folder_;
};

TEST_F(Diverged, ends_as_training_with_any_loss_does) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<std::string>& settings :
       {std::vector<std::string>{},
        {"paco.preset=robust"},
        {"paco.preset=compat"},
        {"paco.warm_up_epochs=0", "paco.solver=hungarian", "paco.soc_metric=stein"},
        {"paco.soc_metric=log_euclidean", "paco.refresh_every=2"}}) {
    EXPECT_THAT(end_of("", kNan, settings, /*skips=*/false),
                AllOf(HasSubstr("[train step 1] The gradient of parameter "),
                      HasSubstr(" is not finite (the loss is nan)"),
                      HasSubstr("trainer.skip_nonfinite"), Not(HasSubstr("expected"))));
    EXPECT_THAT(end_of("", kNan, settings, /*skips=*/true),
                HasSubstr("is not finite (the loss is nan), as in all of the last 2 steps"));
  }
}

// Features are finite, but not the parts that they are projected to.
TEST_F(Diverged, ends_alike_where_parts_overflow) {
  const std::string message = end_of("projection.", 1e25, {}, /*skips=*/false);
  EXPECT_THAT(message, HasSubstr("[train step 1] The gradient of parameter "));
  EXPECT_THAT(message, HasSubstr(" is not finite (the loss is nan)"));
}

}  // namespace
}  // namespace hone::task
