// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/hf_config.h"

#include <gtest/gtest.h>

#include "hone/core/error.h"

namespace hone::model_io {
namespace {

Json config() {
  return {{"architectures", Json::array({"LlamaForCausalLM"})},
          {"vocab_size", 48},
          {"hidden_size", 32},
          {"intermediate_size", 40},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"rms_norm_eps", 1e-6},
          {"max_position_embeddings", 64}};
}

Architecture read(const Json& json, const Json& generation = Json::object()) {
  return read_hf_config(json, generation, "config.json");
}

Json with(const char* key, const Json& value) {
  Json json = config();
  json[key] = value;
  return json;
}

ErrorCategory category_of(const Json& json) {
  try {
    read(json);
  } catch (const Error& error) {
    return error.category();
  }
  ADD_FAILURE() << "accepted " << json.dump();
  return ErrorCategory::Internal;
}

TEST(HfConfig, fills_in_the_defaults_of_llama) {
  const Architecture a = read(config());
  EXPECT_EQ(a.kv_heads, 4);
  EXPECT_EQ(a.head_dim, 8);
  EXPECT_FALSE(a.tied_embeddings);
  EXPECT_EQ(a.rope.theta, 10000);
  EXPECT_EQ(a.rope.rotary_dims, 8);
  EXPECT_EQ(a.rope.pairing, RopePairing::HalfSplit);
  EXPECT_TRUE(a.stop_ids.empty());
  EXPECT_EQ(a.bos_id, std::nullopt);
}

TEST(HfConfig, null_means_absent) {
  Json json = config();
  for (const char* key : {"num_key_value_heads", "head_dim", "rope_scaling", "eos_token_id",
                          "bos_token_id", "attention_bias"})
    json[key] = nullptr;
  EXPECT_EQ(read(json).kv_heads, 4);
}

TEST(HfConfig, stop_ids_are_the_union_of_both_files) {
  const Architecture a = read(with("eos_token_id", {5, 2}), {{"eos_token_id", 7}});
  EXPECT_EQ(a.stop_ids, (std::vector<text::TokenId>{2, 5, 7}));
  EXPECT_EQ(read(with("eos_token_id", 2), {{"eos_token_id", {2, 3}}}).stop_ids,
            (std::vector<text::TokenId>{2, 3}));
}

TEST(HfConfig, reads_both_styles_of_rope) {
  Json older = with("rope_theta", 5e5);
  older["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  Json newer =
      with("rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e5}});
  for (const Json& json : {older, newer}) {
    EXPECT_EQ(read(json).rope.theta, 5e5);
    EXPECT_EQ(read(json).rope.scaling, RopeScaling::Linear);
    EXPECT_EQ(read(json).rope.factor, 2);
  }
  Json both = older;
  both["rope_parameters"] = newer["rope_parameters"];
  EXPECT_EQ(read(both).rope.factor, 2);
}

TEST(HfConfig, refuses_contradictions_about_rope) {
  Json json = with("rope_theta", 1e4);
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  EXPECT_EQ(category_of(json), ErrorCategory::CorruptFile);
  json = with("rope_scaling", {{"type", "linear"}, {"factor", 2.0}});
  json["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(category_of(json), ErrorCategory::CorruptFile);
  EXPECT_EQ(category_of(
                with("rope_scaling", {{"type", "linear"}, {"rope_type", "yarn"}, {"factor", 2.0}})),
            ErrorCategory::CorruptFile);
}

TEST(HfConfig, reads_llama3_and_yarn) {
  const Architecture llama3 =
      read(with("rope_scaling", {{"rope_type", "llama3"},
                                 {"factor", 8.0},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0},
                                 {"original_max_position_embeddings", 16}}));
  EXPECT_EQ(llama3.rope.scaling, RopeScaling::Llama3);
  EXPECT_EQ(llama3.rope.original_context, 16);
  const Architecture yarn =
      read(with("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 16}}));
  EXPECT_EQ(yarn.rope.scaling, RopeScaling::Yarn);
  EXPECT_EQ(yarn.rope.original_context, 64);  // the context itself
  EXPECT_EQ(yarn.rope.beta_fast, 16);
}

TEST(HfConfig, dynamic_rope_works_only_within_the_original_length) {
  EXPECT_EQ(read(with("rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}})).rope.scaling,
            RopeScaling::None);
  EXPECT_EQ(category_of(with(
                "rope_scaling",
                {{"type", "dynamic"}, {"factor", 2.0}, {"original_max_position_embeddings", 32}})),
            ErrorCategory::Unsupported);
}

TEST(HfConfig, names_what_it_does_not_serve) {
  EXPECT_EQ(category_of(with("architectures", {"FooForCausalLM"})), ErrorCategory::Unsupported);
  EXPECT_EQ(category_of(with("hidden_act", "gelu")), ErrorCategory::Unsupported);
  EXPECT_EQ(category_of(with("quantization_config", Json{{"bits", 4}})),
            ErrorCategory::Unsupported);
  EXPECT_EQ(category_of(with("partial_rotary_factor", 0.5)), ErrorCategory::Unsupported);
  EXPECT_EQ(category_of(with("rope_scaling", {{"type", "longrope"}, {"factor", 2.0}})),
            ErrorCategory::Unsupported);
  try {
    read(with("architectures", {"FooForCausalLM"}));
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("LlamaForCausalLM"), std::string::npos);
  }
}

TEST(HfConfig, refuses_values_of_the_wrong_kind) {
  for (const Json& bad : {Json("x"), Json(2.5), Json(-1.5), Json::array(), Json(true)})
    EXPECT_EQ(category_of(with("hidden_size", bad)), ErrorCategory::CorruptFile) << bad.dump();
  EXPECT_EQ(category_of(with("num_attention_heads", 0)), ErrorCategory::CorruptFile);
  EXPECT_EQ(category_of(with("eos_token_id", "two")), ErrorCategory::CorruptFile);
  EXPECT_EQ(category_of(with("eos_token_id", -1)), ErrorCategory::CorruptFile);
  EXPECT_EQ(category_of(with("rope_theta", "big")), ErrorCategory::CorruptFile);
  EXPECT_EQ(category_of(with("architectures", 3)), ErrorCategory::CorruptFile);
  EXPECT_EQ(category_of(Json::array()), ErrorCategory::CorruptFile);
  Json missing = config();
  missing.erase("vocab_size");
  EXPECT_EQ(category_of(missing), ErrorCategory::CorruptFile);
}

TEST(HfConfig, writes_what_it_reads) {
  Json json = config();
  json["num_key_value_heads"] = 2;
  json["head_dim"] = 16;
  json["tie_word_embeddings"] = true;
  json["attention_bias"] = true;
  json["eos_token_id"] = {2, 3};
  json["bos_token_id"] = 1;
  json["rope_scaling"] = {{"rope_type", "yarn"},
                          {"factor", 4.0},
                          {"attention_factor", 1.25},
                          {"original_max_position_embeddings", 16}};
  const Architecture a = read(json);
  const Architecture b = read(write_hf_config(a, "float32"));
  EXPECT_EQ(write_hf_config(a, "float32"), write_hf_config(b, "float32"));
  EXPECT_EQ(b.stop_ids, a.stop_ids);
  EXPECT_EQ(b.rope.attention_factor, 1.25);
  EXPECT_EQ(b.head_dim, 16);
}

}  // namespace
}  // namespace hone::model_io
