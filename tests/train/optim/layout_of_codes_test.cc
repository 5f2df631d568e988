// SPDX-License-Identifier: Apache-2.0
// Scales of 8-bit state belong to blocks of memory, whose order depends on the parameter's layout.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/state_dict.h"
#include "hone/train/optim/state_tensors.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"
#include "tests/train/optim/formula_values.h"

namespace hone::optim {
namespace {

constexpr at::MemoryFormat kFormats[] = {at::MemoryFormat::Contiguous,
                                         at::MemoryFormat::ChannelsLast};

// Values whose size differs between channels and between places by orders of magnitude.
torch::Tensor uneven(int seed) {
  const torch::Tensor out = values(64, 16 * 9, seed).reshape({64, 16, 3, 3});
  const torch::Tensor channel = at::pow(10.0, at::linspace(-3, 0, 16)).reshape({1, 16, 1, 1});
  return out * channel * at::pow(10.0, at::linspace(-2, 0, 9)).reshape({1, 1, 3, 3});
}

torch::Tensor make_param(at::MemoryFormat format) {
  return values(64, 16 * 9, 1).reshape({64, 16, 3, 3}).contiguous(format).requires_grad_();
}

AdamW make_optimizer(torch::Tensor param) {
  return AdamW({std::move(param)}, AdamWOptions(0.01).state_dtype(StateDtype::Block8));
}

void take_steps(AdamW& optimizer, torch::Tensor& param, int first, int steps) {
  for (int step = first; step < first + steps; ++step) {
    param.mutable_grad() = at::empty_like(param).copy_(uneven(10 + step));
    optimizer.step();
  }
}

std::map<std::string, torch::Tensor> state_of(const AdamW& optimizer) {
  std::map<std::string, torch::Tensor> out;
  for (const NamedState& entry : optimizer.export_state()) out[entry.name] = entry.value;
  return out;
}

torch::Tensor in_memory_order(const torch::Tensor& value) {
  const bool last = !value.is_contiguous();
  return (last ? value.permute({0, 2, 3, 1}) : value).contiguous().flatten();
}

// Both moments of `got` are those of `want`, but for what a block of 256 codes may lose.
void expect_same_moments(const AdamW& got, const AdamW& want, const std::string& what) {
  auto a = state_of(got), b = state_of(want);
  for (const std::string name : {"exp_avg", "exp_avg_sq"}) {
    const torch::Tensor wanted =
        copy_like(decode_moment(b.at(name), b.at(name + "_scale")), a.at(name));
    const torch::Tensor found = decode_moment(a.at(name), a.at(name + "_scale"));
    const torch::Tensor off = in_memory_order((found - wanted).abs());
    const torch::Tensor block = in_memory_order(wanted.abs()).reshape({-1, kernels::kCodeBlock});
    const torch::Tensor largest = std::get<0>(block.max(1, true));
    EXPECT_TRUE((off.reshape(block.sizes()) <= 0.05 * largest).all().item<bool>())
        << what << " " << name;
  }
}

using Move = std::function<void(const AdamW& from, AdamW& to)>;

std::map<std::string, Move> moves() {
  return {{"folder",
           [](const AdamW& from, AdamW& to) {
             const hone::test::TemporaryFolder folder;
             save_state_dict(folder.path(), from);
             load_state_dict(folder.path(), to);
           }},
          {"archive",
           [](const AdamW& from, AdamW& to) {
             std::stringstream stream;
             torch::serialize::OutputArchive out;
             from.save(out);
             out.save_to(stream);
             torch::serialize::InputArchive in;
             in.load_from(stream);
             to.load(in);
           }},
          {"memory", [](const AdamW& from, AdamW& to) { to.import_state(from.export_state()); }}};
}

TEST(LayoutOfCodes, moments_survive_a_change_of_memory_format) {
  for (const auto& [name, move] : moves()) {
    for (const at::MemoryFormat from : kFormats) {
      for (const at::MemoryFormat to : kFormats) {
        torch::Tensor source = make_param(from), target = make_param(to);
        AdamW saved = make_optimizer(source), loaded = make_optimizer(target);
        take_steps(saved, source, 0, 3);
        move(saved, loaded);
        expect_same_moments(loaded, saved, name);
        if (from != to) continue;
        target.detach().copy_(source.detach());
        take_steps(saved, source, 3, 2);
        take_steps(loaded, target, 3, 2);
        EXPECT_TRUE(at::equal(source.detach(), target.detach())) << name;
      }
    }
  }
}

TEST(LayoutOfCodes, strides_that_no_dense_block_has_are_refused) {
  torch::Tensor param = make_param(at::MemoryFormat::Contiguous);
  AdamW saved = make_optimizer(param), loaded = make_optimizer(param);
  take_steps(saved, param, 0, 1);
  for (const std::vector<Index>& strides : std::vector<std::vector<Index>>{
           {144, 9, 3, 0}, {1, 1, 1, 1}, {Index{1} << 40, 9, 3, 1}, {144, 9, 3}, {-144, 9, 3, 1}}) {
    std::vector<NamedState> state = saved.export_state();
    for (NamedState& entry : state) {
      if (entry.name == "exp_avg_strides") entry.value = at::tensor(strides, at::kLong);
    }
    EXPECT_THAT(hone::test::refusal([&] { loaded.import_state(state); }),
                testing::HasSubstr("strides"));
  }
}

}  // namespace
}  // namespace hone::optim
