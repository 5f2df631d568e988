// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/load_llama.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hone/model_io/write_model.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::nn {
namespace {

namespace fs = std::filesystem;
using model_io::Architecture;
using model_io::ModelFile;
using model_io::StoreType;
using test::TinyModel;
using testing::HasSubstr;
using torch::Tensor;

std::unique_ptr<ModelFile> open_plain(const fs::path& path) { return test::open_bare(path); }

Llama new_model(Architecture architecture) {
  architecture.rope.pairing = model_io::RopePairing::HalfSplit;
  return Llama(architecture, 99);
}

Llama load(const fs::path& path) {
  const auto file = open_plain(path);
  Llama model = new_model(file->architecture());
  EXPECT_EQ(load_llama(*model, *file), static_cast<Index>(file->tensors().size()));
  return model;
}

std::map<std::string, Tensor> by_name(const Llama& model) {
  std::map<std::string, Tensor> out;
  for (const NamedTensor& named : model->model_tensors()) out[named.name] = named.value;
  return out;
}

bool has_values(const Tensor& tensor, const std::vector<float>& values) {
  return tensor.numel() == static_cast<Index>(values.size()) &&
         std::memcmp(tensor.data_ptr(), values.data(), values.size() * sizeof(float)) == 0;
}

Tensor logits_of(const Llama& model) {
  const torch::NoGradGuard no_grad;
  const Index vocab = model->architecture().vocab_size;
  return model->forward((at::arange(2 * 13, at::kLong) * 7 % vocab).view({2, 13}));
}

std::vector<Architecture> architectures() {
  std::vector<Architecture> all{test::tiny_architecture()};
  Architecture tied = all[0];
  tied.tied_embeddings = tied.attention_bias = tied.mlp_bias = true;
  tied.kv_heads = 1;
  all.push_back(tied);
  Architecture scaled = all[0];
  scaled.rope.scaling = model_io::RopeScaling::Llama3;
  scaled.rope.factor = 8;
  scaled.rope.original_context = 16;
  all.push_back(scaled);
  return all;
}

TEST(LoadLlama, gets_the_bits_that_were_written_from_files_of_either_pairing) {
  const test::TemporaryFolder folder;
  for (const Architecture& architecture : architectures()) {
    const TinyModel written(architecture);
    const fs::path hf = folder.path() / "hf", gguf = folder.path() / "m.gguf";
    model_io::write_hugging_face(hf, written.source());
    model_io::write_gguf(gguf, written.source());
    const Llama from_folder = load(hf), from_gguf = load(gguf);
    for (const Llama& model : {from_folder, from_gguf}) {
      const auto tensors = by_name(model);
      ASSERT_EQ(tensors.size(), written.tensors().size());
      for (const auto& tensor : written.tensors()) {
        EXPECT_TRUE(has_values(tensors.at(tensor.name), test::decoded(tensor))) << tensor.name;
      }
      for (const Tensor& parameter : model->parameters()) EXPECT_TRUE(parameter.requires_grad());
    }
    EXPECT_TRUE(logits_of(from_folder).equal(logits_of(from_gguf)));
  }
}

TEST(LoadLlama, gets_the_bits_of_a_llama2c_file) {
  const test::TemporaryFolder folder;
  Architecture architecture = test::tiny_architecture();
  architecture.head_dim = architecture.rope.rotary_dims = 8;
  const TinyModel written(architecture);
  model_io::write_llama2c(folder.path() / "m.bin", written.source());
  const auto tensors = by_name(load(folder.path() / "m.bin"));
  ASSERT_EQ(tensors.size(), written.tensors().size());
  for (const auto& tensor : written.tensors()) {
    EXPECT_TRUE(has_values(tensors.at(tensor.name), test::decoded(tensor))) << tensor.name;
  }
}

// Rows of q and k from adjacent to half-split order, as docs/formats.md has it.
std::vector<float> reordered(const std::vector<float>& values, Index row_size, Index head_dim) {
  std::vector<float> out;
  const Index rows = static_cast<Index>(values.size()) / row_size, half = head_dim / 2;
  for (Index row = 0; row < rows; ++row) {
    const Index inside = row % head_dim;
    const Index from = row - inside + 2 * (inside % half) + inside / half;
    out.insert(out.end(), values.begin() + from * row_size, values.begin() + (from + 1) * row_size);
  }
  return out;
}

TEST(LoadLlama, gets_what_decode_row_says_of_narrow_and_quantized_files) {
  const test::TemporaryFolder folder;
  for (const Architecture& architecture : architectures()) {
    const TinyModel written(architecture);
    for (const StoreType type :
         {StoreType::F16, StoreType::BF16, StoreType::Q8_0, StoreType::Q4_0}) {
      const fs::path path = folder.path() / "m.gguf";
      model_io::write_gguf(path, written.source(), type);
      const auto file = open_plain(path);
      const auto tensors = by_name(load(path));
      Index quantized = 0;
      for (const auto& tensor : file->tensors()) {
        std::vector<float> values = test::decoded(tensor);
        if (tensor.name.find("q_proj") != std::string::npos ||
            tensor.name.find("k_proj") != std::string::npos) {
          values = reordered(values, tensor.is_vector ? 1 : tensor.matrix.cols, 16);
        }
        EXPECT_TRUE(has_values(tensors.at(tensor.name), values)) << tensor.name;
        quantized += tensor.matrix.layout == WeightLayout::GgufBlocks;
      }
      EXPECT_EQ(quantized > 0, model_io::is_quantized(type));
    }
  }
}

TEST(LoadLlama, tied_weights_stay_one_tensor_and_are_both_embedding_and_output) {
  const test::TemporaryFolder folder;
  Architecture architecture = test::tiny_architecture();
  architecture.tied_embeddings = true;
  const TinyModel written(architecture);
  model_io::write_hugging_face(folder.path() / "hf", written.source());
  const Llama tied = load(folder.path() / "hf");
  EXPECT_FALSE(tied->named_parameters().contains("lm_head"));
  architecture.tied_embeddings = false;
  const Llama untied = new_model(architecture);
  auto copies = by_name(untied);
  for (const auto& [name, tensor] : by_name(tied)) copies.at(name).copy_(tensor);
  copies.at("lm_head.weight").copy_(copies.at("model.embed_tokens.weight"));
  EXPECT_TRUE(logits_of(tied).equal(logits_of(untied)));
}

TEST(LoadLlama, refuses_another_architecture_by_the_tensor) {
  const test::TemporaryFolder folder;
  const Architecture architecture = test::tiny_architecture();
  model_io::write_hugging_face(folder.path() / "hf", TinyModel(architecture).source());
  const auto file = open_plain(folder.path() / "hf");
  const auto said = [&](const Architecture& other) {
    Llama model = new_model(other);
    return test::refusal([&] { load_llama(*model, *file); });
  };
  Architecture other = architecture;
  other.tied_embeddings = true;
  EXPECT_THAT(said(other), HasSubstr("expected 20 tensors, got 21"));
  other = architecture;
  other.kv_heads = 4;
  EXPECT_EQ(said(other),
            "[model.layers.0.self_attn.k_proj.weight] expected the shape [64, 32], got [32, 32]");
  other = architecture;
  other.layers = 1;
  other.mlp_bias = other.attention_bias = true;  // 1 + (9 + 7) + 2 tensors
  EXPECT_THAT(said(other), HasSubstr("expected 19 tensors"));
}

TEST(LoadLlama, refuses_values_that_are_not_finite_by_the_tensor) {
  const test::TemporaryFolder folder;
  const TinyModel written(test::tiny_architecture());
  constexpr const char* kName = "model.layers.1.mlp.up_proj.weight";
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<model_io::NamedMatrix> tensors = written.tensors();
    std::vector<float> values;
    for (model_io::NamedMatrix& tensor : tensors) {
      if (tensor.name != kName) continue;
      values = test::decoded(tensor);
      values[17] = bad;
      tensor.matrix.bytes = std::as_bytes(std::span(values));
    }
    ASSERT_FALSE(values.empty());
    model_io::write_hugging_face(folder.path() / "hf", {written.architecture(), tensors});
    Llama model = new_model(written.architecture());
    EXPECT_EQ(test::refusal([&] { load_llama(*model, *open_plain(folder.path() / "hf")); },
                            ErrorCategory::CorruptFile),
              std::string("[") + kName + "] expected finite values, got NaN or infinity");
  }
}

TEST(LoadLlama, has_the_losses_of_transformers) {
  HONE_REQUIRE_PEER("transformers", "torch");
  const test::TemporaryFolder folder;
  const Json answers = parse_json(
      test::run_peer("tests/train/nn/transformers_loss.py", {folder.path().string()}), "losses");
  ASSERT_EQ(answers.size(), 4u);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Llama model = load(folder.path() / ("m" + std::to_string(i)));
    const auto rows = answers[i].at("ids").get<std::vector<std::vector<std::int64_t>>>();
    std::vector<std::int64_t> flat;
    for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
    const auto length = static_cast<Index>(rows.front().size());
    const Tensor ids = at::tensor(flat, at::kLong).view({static_cast<Index>(rows.size()), length});
    const Tensor targets = ids.narrow(1, 1, length - 1).contiguous();
    const torch::NoGradGuard no_grad;
    const double loss =
        model->loss_sum(ids.narrow(1, 0, length - 1).contiguous(), targets).item<double>() /
        static_cast<double>(targets.numel());
    const double want = answers[i].at("loss").get<double>();
    EXPECT_GT(want, std::log(61.0) + 0.5) << "not what any weights give";
    EXPECT_NEAR(loss, want, 1e-4) << i;
  }
}

}  // namespace
}  // namespace hone::nn
