// SPDX-License-Identifier: Apache-2.0
#include "hone/train/load_mapped.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/core/format/safetensors.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/tensor_file.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

using test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;
using torch::Tensor;

torch::nn::Sequential make_module(std::int64_t seed, std::int64_t width = 64) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  torch::nn::Sequential net(torch::nn::Linear(16, width), torch::nn::BatchNorm1d(width),
                            torch::nn::Linear(width, 4));
  net->eval();
  return net;
}

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> out = nn::parameters_by_path(module);
  for (NamedTensor& buffer : nn::buffers_by_path(module)) out.push_back(std::move(buffer));
  return out;
}

bool same_tensors(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto left = tensors_of(a), right = tensors_of(b);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!left[i].value.equal(right[i].value)) return false;
  }
  return left.size() == right.size();
}

// A safetensors file with a header of this many bytes, before its length.
void write_with_header(const fs::path& path, const std::vector<NamedTensor>& tensors,
                       std::size_t odd_bytes) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, value] : tensors) {
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(value.data_ptr()), value.nbytes());
    header[name] = {
        {"dtype", value.is_floating_point() ? "F32" : "I64"},
        {"shape", std::vector<std::int64_t>(value.sizes().begin(), value.sizes().end())},
        {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  while ((text.size() + 8) % 8 != odd_bytes) text += ' ';
  const std::uint64_t length = text.size();
  write_text_file(path, std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
}

class LoadMapped : public testing::Test {
 protected:
  LoadMapped() : original_(make_module(1)) {
    write_tensors(file(), tensors_of(*original_));
    bytes_ = read_text_file(file());
  }
  fs::path file() const { return folder_.path() / "model.safetensors"; }
  std::string error_with(torch::nn::Module& module, const MapOptions& options = {}) const {
    return error_of([&] { load_mapped(module, folder_.path(), options); });
  }

  test::TemporaryFolder folder_;
  torch::nn::Sequential original_;
  std::string bytes_;
};

TEST_F(LoadMapped, tensors_view_the_file_and_are_those_of_the_module) {
  torch::nn::Sequential net = make_module(2);
  const std::vector<Tensor> before = net->parameters();
  const MappedWeights result = load_mapped(*net, folder_.path());
  EXPECT_EQ(result.mapped, 9);
  EXPECT_EQ(result.copied, 0);
  EXPECT_TRUE(same_tensors(*net, *original_));
  const auto bytes = result.files.front()->bytes();
  for (const auto& [name, value] : tensors_of(*net)) {
    const auto* const data = static_cast<const std::byte*>(value.data_ptr());
    EXPECT_TRUE(data >= bytes.data() && data < bytes.data() + bytes.size()) << name;
  }
  const std::vector<Tensor> after = net->parameters();  // what an optimizer holds
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(before[i].is_same(after[i]));
    EXPECT_TRUE(after[i].requires_grad() && after[i].is_leaf());
  }
  const Tensor x = at::randn({3, 16});
  EXPECT_TRUE(net->forward(x).equal(original_->forward(x)));
}

TEST_F(LoadMapped, writing_copies_pages_and_leaves_the_file_alone) {
  torch::nn::Sequential net = make_module(2), other = make_module(3);
  load_mapped(*net, folder_.path());
  load_mapped(*other, folder_.path());
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  net->forward(at::randn({8, 16})).square().sum().backward();
  optimizer.step();
  EXPECT_FALSE(same_tensors(*net, *original_));
  EXPECT_TRUE(same_tensors(*other, *original_));
  EXPECT_EQ(read_text_file(file()), bytes_);
}

TEST_F(LoadMapped, storages_keep_the_mapping) {
  Tensor kept;
  {
    torch::nn::Sequential net = make_module(2);
    load_mapped(*net, folder_.path());
    kept = net->parameters().front().detach();
  }
  EXPECT_TRUE(kept.equal(original_->parameters().front()));
  fs::remove(file());
  EXPECT_TRUE(kept.equal(original_->parameters().front()));
}

TEST_F(LoadMapped, shards_and_unaligned_data) {
  std::vector<NamedTensor> tensors = tensors_of(*original_);
  const auto middle = tensors.begin() + 4;
  fs::remove(file());
  write_with_header(folder_.path() / "a.safetensors", {tensors.begin(), middle}, 0);
  write_with_header(folder_.path() / "b.safetensors", {middle, tensors.end()}, 1);
  Json map = Json::object();
  for (auto at = tensors.begin(); at != tensors.end(); ++at) {
    map[at->name] = at < middle ? "a.safetensors" : "b.safetensors";
  }
  write_json_file(folder_.path() / "model.safetensors.index.json", {{"weight_map", map}});
  torch::nn::Sequential net = make_module(2);
  const MappedWeights result = load_mapped(*net, folder_.path());
  EXPECT_EQ(result.files.size(), 2u);
  EXPECT_EQ(result.mapped, 4);
  EXPECT_EQ(result.copied, 5);
  EXPECT_TRUE(same_tensors(*net, *original_));
}

TEST_F(LoadMapped, a_misfit_is_named_and_changes_nothing) {
  torch::nn::Sequential wide = make_module(2, 32), same_wide = make_module(2, 32);
  EXPECT_THAT(error_with(*wide), HasSubstr("Float [32, 16] for '0.weight', got Float [64, 16]"));
  EXPECT_TRUE(same_tensors(*wide, *same_wide));
  torch::nn::Sequential half = make_module(2);
  half->to(at::kBFloat16);
  EXPECT_THAT(error_with(*half, {.strict = false}), HasSubstr("BFloat16 [64, 16] for '0.weight'"));

  torch::nn::Sequential net = make_module(2), same = make_module(2);
  std::vector<NamedTensor> tensors = tensors_of(*original_);
  tensors.erase(tensors.begin() + 1);
  tensors.push_back({"extra", at::ones({2})});
  write_tensors(file(), tensors);
  EXPECT_THAT(error_with(*net), HasSubstr("missing: '0.bias'"));
  EXPECT_TRUE(same_tensors(*net, *same));
  const MappedWeights result = load_mapped(*net, folder_.path(), {.strict = false});
  EXPECT_THAT(result.missing, ElementsAre("0.bias"));
  EXPECT_THAT(result.unexpected, ElementsAre("extra"));
  EXPECT_TRUE(net->parameters()[1].equal(same->parameters()[1]));
  EXPECT_TRUE(net->parameters()[0].equal(original_->parameters()[0]));
  tensors.erase(tensors.begin(), tensors.end() - 1);
  tensors.push_back({"0.bias", at::ones({64})});
  write_tensors(file(), tensors);
  torch::nn::Linear lone(16, 64);
  EXPECT_THAT(error_with(*lone), HasSubstr("missing: 'weight', 'bias'"));
}

struct SharedImpl : torch::nn::Module {
  Tensor a = register_parameter("a", at::zeros({8}));
  Tensor b = register_parameter("b", a);
};

TEST_F(LoadMapped, of_shared_parameters_one_name_is_enough) {
  SharedImpl module;
  write_tensors(file(), {{"b", at::arange(8, at::kFloat)}});
  EXPECT_EQ(load_mapped(module, file()).mapped, 1);
  EXPECT_TRUE(module.a.equal(at::arange(8, at::kFloat)));
  EXPECT_TRUE(module.a.is_same(module.b));
}

TEST_F(LoadMapped, damaged_files_are_errors) {
  torch::nn::Sequential net = make_module(2);
  write_text_file(file(), bytes_.substr(0, bytes_.size() - 1));
  EXPECT_THAT(error_with(*net), HasSubstr("model.safetensors"));
  fs::remove(file());
  EXPECT_NE(error_with(*net), "no error");
  write_text_file(file(), bytes_);
  const MappedWeights result = load_mapped(*net, folder_.path());
  result.check_intact();
  fs::resize_file(file(), 0);
  EXPECT_EQ(net->parameters()[0].sum().item<float>(), 0);  // zeros rather than a signal
  EXPECT_THAT(error_of([&] { result.check_intact(); }), HasSubstr("truncated"));
}

}  // namespace
}  // namespace hone
