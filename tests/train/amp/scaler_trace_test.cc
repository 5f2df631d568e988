// SPDX-License-Identifier: Apache-2.0
// The scale's path against Python's torch.amp.GradScaler, step by step.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <limits>
#include <vector>

#include "hone/core/philox.h"
#include "hone/train/amp/grad_scaler.h"
#include "hone/train/optim/adam.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::amp {
namespace {

constexpr const char* kPeer = "tests/train/amp/scaler_trace.py";
constexpr Index kSteps = 10'000;

struct Case {
  Index interval = 2000;
  double overflow_rate = 0;
  double growth = 2, backoff = 0.5;
};

// Per step: bit 0 and 1: overflow in the first and second optimizer, bit 2: an explicit unscale_.
std::vector<int> make_codes(const Case& given, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<int> codes(kSteps);
  for (int& code : codes) {
    const bool overflow = random.uniform() < given.overflow_rate;
    code = (overflow ? 1 + static_cast<int>(random.below(3)) : 0) | (random.below(4) == 0 ? 4 : 0);
  }
  return codes;
}

// hone's fused step and LibTorch's own optimizer under one scaler.
class TwoOptimizers {
 public:
  // Which of them stepped: bits 0 and 1.
  int iterate(GradScaler& scaler, int code) {
    scaler.scale(torch::ones({}));
    set_gradient(first_, code & 1);
    set_gradient(second_, code & 2);
    if ((code & 4) != 0) scaler.unscale_(hone_);
    const int stepped = scaler.step(hone_).stepped + 2 * scaler.step(stock_).stepped;
    scaler.update();
    return stepped;
  }

 private:
  static void set_gradient(torch::Tensor& param, bool overflow) {
    param.mutable_grad() =
        torch::full({3}, overflow ? std::numeric_limits<float>::infinity() : 1.0f);
  }

  torch::Tensor first_ = torch::zeros({3}).requires_grad_();
  torch::Tensor second_ = torch::zeros({3}).requires_grad_();
  optim::AdamW hone_{std::vector<torch::Tensor>{first_}, optim::AdamWOptions(0.1)};
  torch::optim::SGD stock_{std::vector<torch::Tensor>{second_}, torch::optim::SGDOptions(0.0)};
};

Json run_python(const char* mode, const Json& given) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "given.json";
  write_json_file(file, given);
  return parse_json(test::run_peer(kPeer, {mode, file.string()}), kPeer);
}

void expect_same_path(const Case& given, const std::vector<int>& codes, const Json& python) {
  GradScaler scaler({.growth_factor = given.growth,
                     .backoff_factor = given.backoff,
                     .growth_interval = given.interval});
  TwoOptimizers optimizers;
  Index skips = 0;
  for (std::size_t t = 0; t < codes.size(); ++t) {
    const int stepped = optimizers.iterate(scaler, codes[t]);
    skips += stepped != 3;
    ASSERT_EQ(stepped, python["stepped"][t].get<int>()) << "step " << t;
    ASSERT_EQ(scaler.get_scale(), python["scale"][t].get<double>()) << "step " << t;
    ASSERT_EQ(scaler.growth_tracker(), python["tracker"][t].get<Index>()) << "step " << t;
  }
  EXPECT_GT(skips, 0);
  EXPECT_EQ(scaler.state_dict(), python["state"]);
}

TEST(GradScaler, follows_pythons_scale_counter_and_skips_for_ten_thousand_steps) {
  HONE_REQUIRE_PEER("torch");
  // The first grows to 2^127 and stops there, the last takes scales that are no powers of two.
  const std::vector<Case> cases{{1, 0.3}, {3, 0.2}, {2000, 1.0 / 3000}, {3, 0.1, 1.7, 0.3}};
  Json script = Json::array();
  for (std::size_t c = 0; c < cases.size(); ++c) {
    script.push_back({{"interval", cases[c].interval},
                      {"growth", cases[c].growth},
                      {"backoff", cases[c].backoff},
                      {"codes", make_codes(cases[c], 40 + c)}});
  }
  const Json python = run_python("trace", script);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(c);
    expect_same_path(cases[c], script[c]["codes"].get<std::vector<int>>(), python[c]);
  }
}

TEST(GradScaler, a_state_dict_moves_to_python_and_back) {
  HONE_REQUIRE_PEER("torch");
  GradScaler scaler({.init_scale = 1024, .growth_interval = 5});
  TwoOptimizers optimizers;
  for (const int code : {0, 1, 0, 0}) optimizers.iterate(scaler, code);
  const Json python = run_python("resume", scaler.state_dict());
  GradScaler loaded;
  loaded.load_state_dict(scaler.state_dict());
  for (int t = 0; t < 5; ++t) optimizers.iterate(loaded, 0);
  EXPECT_EQ(loaded.state_dict(), python);
  EXPECT_EQ(python["scale"], 1024.0);
  EXPECT_EQ(python["_growth_tracker"], 2);
  GradScaler back;
  back.load_state_dict(python);
  EXPECT_EQ(back.state_dict(), python);
}

}  // namespace
}  // namespace hone::amp
