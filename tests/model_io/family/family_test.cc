// SPDX-License-Identifier: Apache-2.0
// The table of families: names, traits and storage that the documentation of the models states, and
// files that contradict it.
#include "hone/model_io/family/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/safetensors.h"
#include "hone/model_io/family/file_tensors.h"
#include "hone/model_io/hf_config.h"
#include "tests/model_io/tiny_families.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;
using test::TinyModel;
using testing::HasSubstr;

Json config_of(const Family& family) { return test::tiny_config(family); }

Json config_of(std::string_view name) { return config_of(*find_family("", name)); }

Architecture read(const Json& json) {
  Architecture a = read_hf_config(json, Json::object(), "config.json");
  validate(a, "config.json");
  return a;
}

std::string refusal(const Json& json, ErrorCategory category) {
  return test::refusal([&] { read(json); }, category);
}

TEST(Family, an_unknown_class_is_refused_with_the_list_of_known_ones) {
  Json json = config_of("llama");
  json["architectures"] = {"FooForCausalLM"};
  const std::string said = refusal(json, ErrorCategory::Unsupported);
  EXPECT_THAT(said, HasSubstr("got 'FooForCausalLM'"));
  for (const Family& family : families())
    EXPECT_THAT(said, HasSubstr(std::string(family.model_class)));
  json.erase("architectures");
  json["model_type"] = "foo";
  EXPECT_THAT(refusal(json, ErrorCategory::Unsupported), HasSubstr("got 'foo'"));
}

TEST(Family, the_model_type_stands_in_for_a_missing_class) {
  for (const Family& family : families()) {
    Json json = config_of(family);
    json.erase("architectures");
    EXPECT_EQ(read(json).family, family.name);
  }
}

TEST(Family, names_of_tensors_are_unique_and_every_planned_tensor_has_one) {
  for (const Family& family : families()) {
    const Architecture a = read(config_of(family));
    for (const FileFormat format : {FileFormat::HuggingFace, FileFormat::Gguf}) {
      std::set<std::string> names;
      Index values = 0;
      for (const FileTensor& tensor : file_tensors(a, format)) {
        EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
        values += tensor.rows * tensor.cols;
      }
      EXPECT_EQ(values, a.parameters()) << family.name;
    }
  }
}

TEST(Family, embeddings_of_positions_are_not_quantized) {
  constexpr const char* kName = "model.embed_positions.weight";
  const test::TemporaryFolder folder;
  const auto gpt2 = std::ranges::find(families(), "gpt2", &Family::name);
  const TinyModel model(read(config_of(*gpt2)));
  const auto positions = std::ranges::find(model.tensors(), kName, &NamedMatrix::name);
  const OpenOptions bare{.tokenizer = {}, .need_tokenizer = false};
  for (const char* name : {"m.gguf", "packed"}) {
    const auto path = folder.path() / name;
    const WriteReport report = path.extension() == ".gguf"
                                   ? write_gguf(path, model.source(), StoreType::Q8_0)
                                   : write_artifact(path, model.source(), StoreType::Q8_0);
    EXPECT_EQ(std::ranges::count(report.kept, "positions are not quantized", &KeptTensor::reason),
              1);
    const auto opened = open_model_or_throw(path, bare);
    EXPECT_EQ(opened->tensor(kName).matrix.layout, WeightLayout::Dense);
    EXPECT_TRUE(test::same_bits(test::decoded(opened->tensor(kName)), test::decoded(*positions)));
    EXPECT_NE(opened->tensor("model.embed_tokens.weight").matrix.layout, WeightLayout::Dense);
  }
}

TEST(Family, folders_and_gguf_give_back_every_tensor_bit_for_bit) {
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const test::TemporaryFolder folder;
    const TinyModel model(read(config_of(family)));
    const OpenOptions bare{.tokenizer = {}, .need_tokenizer = false};
    write_hugging_face(folder.path() / "a", model.source());
    const auto first = open_model_or_throw(folder.path() / "a", bare);
    write_gguf(folder.path() / "m.gguf",
               {first->architecture(), first->tensors(), nullptr, Json::object()});
    const auto gguf = open_model_or_throw(folder.path() / "m.gguf", bare);
    EXPECT_EQ(gguf->architecture().family, family.name);
    write_hugging_face(folder.path() / "b",
                       {gguf->architecture(), gguf->tensors(), nullptr, Json::object()});
    const auto last = open_model_or_throw(folder.path() / "b", bare);
    ASSERT_EQ(last->tensors().size(), model.tensors().size());
    for (const NamedMatrix& tensor : model.tensors()) {
      EXPECT_TRUE(test::same_bits(test::decoded(first->tensor(tensor.name)), test::decoded(tensor)))
          << tensor.name;
      const auto back = test::decoded(last->tensor(tensor.name)), wanted = test::decoded(tensor);
      // Where GGUF stores 1 + w for a norm, w comes back rounded.
      for (std::size_t i = 0; i < back.size(); ++i)
        ASSERT_NEAR(back[i], wanted[i], family.hugging_face_norm_offset != 0 ? 2e-7 : 0)
            << tensor.name;
    }
    EXPECT_EQ(read_json_file(folder.path() / "a" / "config.json"),
              read_json_file(folder.path() / "b" / "config.json"));
  }
}

// transformers loads it where its values are others, and merged models have such.
TEST(Family, an_output_matrix_beside_tied_embeddings_counts_if_it_differs) {
  for (const char* name : {"llama", "gpt2"}) {
    Json config = config_of(name);
    config["tie_word_embeddings"] = false;
    const TinyModel model(read(config));
    for (const bool same : {false, true}) {
      const test::TemporaryFolder folder;
      const fs::path path = folder.path() / "m";
      std::vector<NamedMatrix> tensors = model.tensors();
      const auto named = [&tensors](const std::string& wanted) -> NamedMatrix& {
        return *std::ranges::find(tensors, wanted, &NamedMatrix::name);
      };
      if (same) named("lm_head.weight").matrix = named("model.embed_tokens.weight").matrix;
      write_hugging_face(path, {model.architecture(), tensors, nullptr, Json::object()});
      Json written = read_json_file(path / "config.json");
      written["tie_word_embeddings"] = true;
      write_json_file(path / "config.json", written);
      const auto opened = test::open_bare(path);
      EXPECT_EQ(opened->architecture().tied_embeddings, same) << name;
      EXPECT_EQ(opened->tensors().size(), tensors.size() - (same ? 1 : 0)) << name;
      if (same) continue;
      EXPECT_TRUE(test::same_bits(test::decoded(opened->tensor("lm_head.weight")),
                                  test::decoded(named("lm_head.weight"))));
    }
  }
}

TEST(Family, a_scaling_in_layers_with_a_window_survives_folders_and_is_refused_by_gguf) {
  Json json = config_of("gemma3_text");
  json["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"rope_theta", 1e6}, {"factor", 8.0}}},
      {"sliding_attention",
       {{"rope_type", "yarn"},
        {"rope_theta", 1e4},
        {"factor", 4.0},
        {"original_max_position_embeddings", 32}}}};
  const TinyModel model(read(json));
  const test::TemporaryFolder folder;
  write_hugging_face(folder.path() / "m", model.source());
  const auto opened = test::open_bare(folder.path() / "m");
  const Architecture& back = opened->architecture();
  EXPECT_EQ(back.rope.scaling, RopeScaling::Linear);
  EXPECT_EQ(back.rope.factor, 8);
  EXPECT_EQ(back.rope.theta, 1e6);
  ASSERT_TRUE(back.window_rope.has_value());
  EXPECT_EQ(back.window_rope->scaling, RopeScaling::Yarn);
  EXPECT_EQ(back.window_rope->factor, 4);
  EXPECT_EQ(back.window_rope->original_context, 32);
  EXPECT_EQ(back.window_rope->theta, 1e4);
  EXPECT_THAT(test::refusal([&] { write_gguf(folder.path() / "m.gguf", model.source()); },
                            ErrorCategory::Unsupported),
              HasSubstr("a scaling of RoPE in the layers with a window"));
}

TEST(Family, a_tensor_that_is_missing_or_unknown_is_named_as_the_file_names_it) {
  const std::map<std::string, std::string> missing{
      {"gpt2", "There is no tensor transformer.h.1.mlp.c_proj.weight of shape [40, 32]"},
      {"phi3", "There is no tensor lm_head.weight of shape [48, 32]"},
      {"gemma2", "There is no tensor model.norm.weight of shape [32]"}};
  for (const auto& [name, sentence] : missing) {
    const test::TemporaryFolder folder;
    const TinyModel model(read(config_of(name)));
    write_hugging_face(folder.path() / "m", model.source());
    const fs::path weights = folder.path() / "m" / "model.safetensors";
    const auto rewrite = [&](const std::string& without, const std::string& with) {
      const MmapFile file(weights);
      std::vector<SafetensorsWriter::Entry> plan;
      std::vector<std::vector<std::byte>> data;
      for (const SafetensorsTensor& tensor : parse_safetensors(file.bytes(), "m").tensors) {
        if (tensor.name == without) continue;
        plan.push_back({tensor.name, tensor.dtype, tensor.shape});
        data.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
      }
      if (!with.empty()) {
        plan.push_back({with, Dtype::Float32, Shape{1}});
        data.emplace_back(4);
      }
      const fs::path other = folder.path() / "other";
      SafetensorsWriter writer(other, plan, {{"format", "pt"}});
      for (const auto& bytes : data) writer.write(bytes);
      writer.commit();
      return other;
    };
    const auto said = [&](const fs::path& file) {
      const fs::path broken = folder.path() / "broken";
      fs::remove_all(broken);
      fs::create_directory(broken);
      fs::copy(folder.path() / "m" / "config.json", broken / "config.json");
      fs::copy(file, broken / "model.safetensors");
      return test::refusal([&] { test::open_bare(broken); }, ErrorCategory::CorruptFile);
    };
    const std::string gone = sentence.substr(19, sentence.find(" of shape") - 19);
    EXPECT_THAT(said(rewrite(gone, "")), HasSubstr(sentence));
    EXPECT_THAT(said(rewrite("", "model.layers.0.extra.weight")),
                HasSubstr("'model.layers.0.extra.weight' is not a tensor of this"));
  }
}

TEST(Family, windows_follow_the_rules_of_each_family) {
  Json mistral = config_of("mistral");
  EXPECT_EQ(read(mistral).windows, (std::vector<Index>{4096, 4096}));
  mistral["sliding_window"] = nullptr;
  EXPECT_TRUE(read(mistral).windows.empty());
  Json qwen = config_of("qwen2");
  qwen["sliding_window"] = 8;
  EXPECT_TRUE(read(qwen).windows.empty());
  qwen["use_sliding_window"] = true;
  EXPECT_TRUE(read(qwen).windows.empty());  // from layer 28 on
  qwen["max_window_layers"] = 1;
  EXPECT_EQ(read(qwen).windows, (std::vector<Index>{0, 8}));
  qwen["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(read(qwen).windows, (std::vector<Index>{8, 0}));
  EXPECT_EQ(read(config_of("gemma2")).windows, (std::vector<Index>{4096, 0}));
  Json gemma3 = config_of("gemma3_text");
  gemma3["num_hidden_layers"] = 7;
  EXPECT_EQ(read(gemma3).windows, (std::vector<Index>{4096, 4096, 4096, 4096, 4096, 0, 4096}));
  EXPECT_TRUE(read(config_of("llama")).windows.empty());
}

TEST(Family, refuses_lists_of_layers_that_do_not_fit) {
  Json json = config_of("qwen3");
  json["use_sliding_window"] = true;
  json["layer_types"] = {"full_attention"};
  EXPECT_THAT(refusal(json, ErrorCategory::CorruptFile), HasSubstr("a list of 2 types"));
  json["layer_types"] = {"full_attention", "linear_attention"};
  EXPECT_THAT(refusal(json, ErrorCategory::Unsupported), HasSubstr("got 'linear_attention'"));
  json["layer_types"] = 3;
  EXPECT_NE(refusal(json, ErrorCategory::CorruptFile), "");
  json = config_of("qwen3");
  json["use_sliding_window"] = true;
  json["sliding_window"] = -1;
  EXPECT_NE(refusal(json, ErrorCategory::CorruptFile), "");
  json = config_of("llama");
  json["layer_intermediate_sizes"] = {8};
  EXPECT_THAT(refusal(json, ErrorCategory::CorruptFile), HasSubstr("for each of 2 layers"));
  json["layer_intermediate_sizes"] = {8, Index{1} << 40};
  EXPECT_NE(refusal(json, ErrorCategory::CorruptFile), "");
  json.erase("layer_intermediate_sizes");
  json["layer_attention_heads"] = {4, 0};
  EXPECT_NE(refusal(json, ErrorCategory::CorruptFile), "");
  json["layer_attention_heads"] = {4, "x"};
  EXPECT_NE(refusal(json, ErrorCategory::CorruptFile), "");
}

TEST(Family, null_switches_a_soft_cap_off_and_an_absent_key_keeps_the_default) {
  Json json = config_of("gemma2");
  EXPECT_EQ(read(json).attention_soft_cap, 50);
  EXPECT_EQ(read(json).logit_soft_cap, 30);
  json["attn_logit_softcapping"] = nullptr;
  json["final_logit_softcapping"] = 7.5;
  EXPECT_EQ(read(json).attention_soft_cap, 0);
  EXPECT_EQ(read(json).logit_soft_cap, 7.5);
  EXPECT_DOUBLE_EQ(read(json).embedding_scale, std::sqrt(32.0));
  EXPECT_DOUBLE_EQ(read(json).score_scale(1), 1.0 / 16);  // query_pre_attn_scalar is 256
  json["final_logit_softcapping"] = -1.0;
  EXPECT_NE(refusal(json, ErrorCategory::CorruptFile), "");
  json["final_logit_softcapping"] = "big";
  EXPECT_NE(refusal(json, ErrorCategory::CorruptFile), "");
  json = config_of("gemma2");
  for (const double bad : {0.0, -4.0}) {
    json["query_pre_attn_scalar"] = bad;
    EXPECT_NE(refusal(json, ErrorCategory::CorruptFile), "");
  }
}

TEST(Family, refuses_contradictions_of_rope_for_types_of_layers) {
  Json json = config_of("gemma3_text");
  json["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  EXPECT_EQ(read(json).rope.theta, 1e6);
  EXPECT_EQ(read(json).window_rope->theta, 1e4);
  json["rope_local_base_freq"] = 2e4;
  EXPECT_THAT(refusal(json, ErrorCategory::CorruptFile), HasSubstr("two values"));
  json["rope_local_base_freq"] = 1e4;
  json["rope_theta"] = 5e5;
  EXPECT_THAT(refusal(json, ErrorCategory::CorruptFile), HasSubstr("two values"));
  Json llama = config_of("llama");
  llama["rope_parameters"] = json["rope_parameters"];
  EXPECT_NE(refusal(llama, ErrorCategory::Unsupported), "");
}

TEST(Family, serves_a_partial_rotation_only_where_the_class_has_one) {
  Json json = config_of("phi3");
  json["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(read(json).rope.rotary_dims, 4);
  json["partial_rotary_factor"] = 0.4;  // 3 dimensions
  EXPECT_NE(refusal(json, ErrorCategory::CorruptFile), "");
  for (const double bad : {0.0, -1.0, 2.0}) {
    json["partial_rotary_factor"] = bad;
    EXPECT_NE(refusal(json, ErrorCategory::CorruptFile), "");
  }
  Json llama = config_of("llama");
  llama["partial_rotary_factor"] = 0.5;
  EXPECT_NE(refusal(llama, ErrorCategory::Unsupported), "");
}

TEST(Family, refuses_what_the_forward_pass_does_not_compute) {
  const auto refused = [](std::string_view name, const char* key, const Json& value) {
    Json json = config_of(name);
    json[key] = value;
    return refusal(json, ErrorCategory::Unsupported);
  };
  EXPECT_NE(refused("gpt2", "activation_function", "gelu"), "");
  EXPECT_NE(refused("gpt2", "activation_function", "relu"), "");
  EXPECT_NE(refused("gpt2", "add_cross_attention", true), "");
  EXPECT_NE(refused("gemma2", "hidden_activation", "silu"), "");
  EXPECT_NE(refused("gemma3_text", "use_bidirectional_attention", true), "");
  EXPECT_NE(refused("qwen2", "hidden_act", "gelu_new"), "");
  EXPECT_NE(refused("phi3", "rope_scaling", {{"type", "longrope"}, {"short_factor", {1.0, 1.0}}}),
            "");
  EXPECT_NE(refused("mistral", "quantization_config", {{"bits", 4}}), "");
}

TEST(Family, sizes_out_of_range_are_refused_before_anything_is_allocated) {
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    const std::pair<std::string_view, Index> bad[] = {{family.keys.hidden, Index{1} << 50},
                                                      {family.keys.hidden, -8},
                                                      {family.keys.layers, 513},
                                                      {family.keys.layers, Index{1} << 60},
                                                      {family.keys.heads, 0},
                                                      {family.keys.heads, -4},
                                                      {family.keys.context, Index{1} << 40},
                                                      {family.keys.intermediate, 0},
                                                      {"vocab_size", Index{1} << 40}};
    for (const auto& [key, value] : bad) {
      Json json = config_of(family);
      json[std::string(key)] = value;
      EXPECT_THAT(refusal(json, ErrorCategory::CorruptFile), HasSubstr("expected")) << key;
    }
  }
}

}  // namespace
}  // namespace hone::model_io
