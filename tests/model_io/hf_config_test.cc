// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "hone/core/error.h"
#include "hone/model_io/tensor_plan.h"
#include "tests/support/error_of.h"

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

TEST(HfConfig, yarn_extends_the_context_and_other_scalings_do_not) {
  const auto context_of = [](const Json& scaling, Index positions) {
    Json json = with("max_position_embeddings", positions);
    json["rope_scaling"] = scaling;
    const Architecture a = read(json);
    validate(a, "config.json");
    // The length that the scaling starts from is the one that the file names.
    EXPECT_TRUE(a.rope.scaling != RopeScaling::Yarn || a.rope.original_context == 32'768);
    return a.context;
  };
  // The configuration that the description of Qwen 2.5 gives for 131,072 tokens.
  const Json yarn = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32'768}};
  for (const Index positions : {4096, 32'768, 40'960, 131'072}) {
    EXPECT_EQ(context_of(yarn, positions), 131'072) << positions;
  }
  EXPECT_EQ(context_of(yarn, 262'144), 262'144);
  Json newer = with("max_position_embeddings", 32'768);
  newer["rope_parameters"] = yarn;
  newer["rope_parameters"]["rope_theta"] = 1e6;
  EXPECT_EQ(read(newer).context, 131'072);
  EXPECT_EQ(context_of({{"type", "linear"}, {"factor", 4.0}}, 32'768), 32'768);
  EXPECT_EQ(context_of({{"type", "dynamic"}, {"factor", 4.0}}, 32'768), 32'768);
  EXPECT_EQ(context_of({{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}},
                       32'768),
            32'768);
  EXPECT_EQ(context_of(nullptr, 32'768), 32'768);
}

TEST(HfConfig, writes_the_extended_context_so_that_it_reads_the_same) {
  Json json = with("max_position_embeddings", 32'768);
  json["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32'768}};
  const Json written = write_hf_config(read(json), "float32");
  EXPECT_EQ(written["max_position_embeddings"], 131'072);
  EXPECT_EQ(written["rope_scaling"]["original_max_position_embeddings"], 32'768);
  EXPECT_EQ(written["rope_scaling"]["factor"], 4.0);
  const Architecture again = read(written);
  EXPECT_EQ(again.context, 131'072);
  EXPECT_EQ(write_hf_config(again, "float32"), written);
}

// Where transformers looks for it first.
TEST(HfConfig, the_original_length_may_lie_outside_of_the_scaling) {
  for (const char* style : {"rope_scaling", "rope_parameters"}) {
    Json json = with("original_max_position_embeddings", 16);
    json[style] = {{"rope_type", "yarn"}, {"factor", 4.0}};
    EXPECT_EQ(read(json).rope.original_context, 16) << style;
    json[style]["original_max_position_embeddings"] = 16;
    EXPECT_EQ(read(json).rope.original_context, 16) << style;
    json[style]["original_max_position_embeddings"] = 32;
    EXPECT_EQ(category_of(json), ErrorCategory::CorruptFile) << style;
    json[style] = {{"rope_type", "llama3"},
                   {"factor", 8.0},
                   {"low_freq_factor", 1.0},
                   {"high_freq_factor", 4.0}};
    EXPECT_EQ(read(json).rope.original_context, 16) << style;
  }
  Json plain = with("original_max_position_embeddings", 16);
  plain["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_EQ(read(plain).rope.scaling, RopeScaling::None);
}

TEST(HfConfig, dynamic_rope_works_only_within_the_original_length) {
  EXPECT_EQ(read(with("rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}})).rope.scaling,
            RopeScaling::None);
  EXPECT_EQ(category_of(with(
                "rope_scaling",
                {{"type", "dynamic"}, {"factor", 2.0}, {"original_max_position_embeddings", 32}})),
            ErrorCategory::Unsupported);
}

TEST(HfConfig, ids_beyond_the_vocabulary_can_never_be_drawn) {
  const Architecture a =
      read(with("eos_token_id", {2, 50'000'000}), {{"eos_token_id", 60'000'000}});
  EXPECT_EQ(a.stop_ids, (std::vector<text::TokenId>{2}));
  EXPECT_EQ(read(with("bos_token_id", 50'000'000)).bos_id, std::nullopt);
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
  EXPECT_THROW(read(config(), {{"do_sample", "no"}}), Error);
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
  EXPECT_EQ(b.bos_id, 1);
  EXPECT_EQ(b.rope.scaling, RopeScaling::Yarn);
  EXPECT_EQ(b.rope.factor, 4);
  EXPECT_EQ(b.rope.attention_factor, 1.25);
  EXPECT_EQ(b.rope.original_context, 16);
  EXPECT_EQ(b.head_dim, 16);
  EXPECT_EQ(b.kv_heads, 2);
  EXPECT_TRUE(b.tied_embeddings && b.attention_bias);
}

Architecture read_valid(const Json& json) {
  const Architecture a = read(json);
  validate(a, "config.json");
  return a;
}

Json low_rank(Index rank) { return {{"mode", "low_rank"}, {"rank", rank}}; }
Json sketched(Index rank, Index terms) {
  return {{"mode", "sketched"}, {"rank", rank}, {"terms", terms}, {"seed", 7}};
}

TEST(HfConfig, names_the_tensors_of_factored_layers) {
  Json json = with("factored_layers", {{"model.layers.1.mlp.down_proj", low_rank(6)},
                                       {"model.layers.0.mlp.gate_up_proj", sketched(8, 2)},
                                       {"model.layers.0.self_attn.qkv_proj", low_rank(5)}});
  json["attention_bias"] = true;
  const Architecture a = read_valid(json);
  std::map<std::string, std::pair<Index, Index>> shapes;
  Index numbers = 0;
  for (const PlannedTensor& tensor : plan_tensors(a)) {
    shapes[tensor.name] = {tensor.rows, tensor.cols};
    numbers += tensor.rows * tensor.cols;
  }
  using Shape = std::pair<Index, Index>;
  EXPECT_EQ(shapes.at("model.layers.1.mlp.down_proj.a"), Shape(6, 40));
  EXPECT_EQ(shapes.at("model.layers.1.mlp.down_proj.b"), Shape(6, 32));
  EXPECT_EQ(shapes.at("model.layers.0.mlp.gate_up_proj.s1"), Shape(4, 32));
  EXPECT_EQ(shapes.at("model.layers.0.mlp.gate_up_proj.s2"), Shape(4, 80));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.qkv_proj.a"), Shape(5, 32));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.qkv_proj.b"), Shape(5, 96));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.qkv_proj.bias"), Shape(1, 96));
  for (const char* replaced :
       {"model.layers.1.mlp.down_proj.weight", "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.k_proj.bias"}) {
    EXPECT_FALSE(shapes.contains(replaced)) << replaced;
  }
  EXPECT_TRUE(shapes.contains("model.layers.1.mlp.up_proj.weight"));
  EXPECT_EQ(a.parameters(), numbers);
  const Index dense = read_valid(with("attention_bias", true)).parameters();
  EXPECT_EQ(dense - numbers, 32 * 40 - 6 * 72 + 32 * 80 - 4 * 112 + 32 * 96 - 5 * 128);
}

TEST(HfConfig, writes_factored_layers_as_it_reads_them_in_a_class_that_others_refuse) {
  Json json = with("factored_layers", {{"model.layers.1.mlp.down_proj", low_rank(6)},
                                       {"model.layers.0.mlp.gate_up_proj", sketched(8, 2)}});
  json["factored_layers"]["model.layers.0.mlp.gate_up_proj"]["seed"] = ~std::uint64_t{0};
  const Architecture a = read_valid(json);
  EXPECT_EQ(a.factored[1].seed, ~std::uint64_t{0});
  const Json written = write_hf_config(a, "float32");
  EXPECT_EQ(written["factored_layers"], json["factored_layers"]);
  EXPECT_EQ(written["architectures"], Json::array({"FactoredLlamaForCausalLM"}));
  EXPECT_EQ(read_valid(written).factored, a.factored);
  EXPECT_FALSE(write_hf_config(read(config()), "float32").contains("factored_layers"));
  EXPECT_EQ(category_of(with("architectures", Json::array({"FactoredLlamaForCausalLM"}))),
            ErrorCategory::Unsupported);
  Json without =
      with("factored_layers",
           {{"model.layers.0.mlp.down_proj", {{"mode", "sketched"}, {"rank", 8}, {"seed", 3}}}});
  EXPECT_EQ(read_valid(without).factored.front().terms, 1);
}

TEST(HfConfig, refuses_hostile_factored_layers_by_name) {
  const std::string name = "model.layers.0.mlp.down_proj";
  const auto said = [&](const std::string& layer, const Json& value) {
    return test::refusal(
        [&] {
          read_valid(with("factored_layers", {{layer, value}}));
        },
        ErrorCategory::CorruptFile);
  };
  const auto changed = [](Json layer, const char* key, const Json& value) {
    layer[key] = value;
    return layer;
  };
  const Json thin = low_rank(6), signs = sketched(8, 2);
  const Index huge = Index{1} << 40;
  for (const Json& wrong : {low_rank(0),
                            low_rank(-1),
                            low_rank(33),
                            low_rank(huge),
                            changed(thin, "rank", 1.5),
                            changed(thin, "rank", "6"),
                            changed(thin, "rank", nullptr),
                            changed(thin, "mode", 1),
                            changed(thin, "mode", "svd"),
                            changed(thin, "mode", nullptr),
                            changed(thin, "seed", 1),
                            changed(thin, "alpha", 1),
                            Json(6),
                            Json::array({6}),
                            Json::object(),
                            sketched(8, 3),
                            sketched(7, 1),
                            sketched(8, 0),
                            sketched(8, huge),
                            sketched(66, 1),
                            sketched(huge, huge / 2),
                            changed(signs, "seed", -1),
                            changed(signs, "seed", 0.5),
                            changed(signs, "seed", nullptr),
                            changed(signs, "terms", "2")}) {
    EXPECT_THAT(said(name, wrong), testing::HasSubstr(name)) << wrong.dump();
  }
  EXPECT_EQ(said(name, low_rank(32)), "");
  EXPECT_EQ(said(name, sketched(64, 1)), "");
  for (const char* other :
       {"", "model.layers.2.mlp.down_proj", "model.layers.-1.mlp.down_proj",
        "model.layers.00.mlp.down_proj", "layers.0.mlp.down_proj", "model.layers.0.mlp.up_proj",
        "model.layers.0.mlp.down_proj.weight", "lm_head", "model.layers.0.mlp.down_proj\n"}) {
    EXPECT_THAT(said(other, thin), testing::HasSubstr("factored_layers")) << other;
  }
  EXPECT_THAT(said(std::string(1000, 'x'), thin), testing::HasSubstr("xxx"));
  EXPECT_EQ(category_of(with("factored_layers", Json::array())), ErrorCategory::CorruptFile);
  Architecture twice = read_valid(with("factored_layers", {{name, thin}}));
  twice.factored.push_back(twice.factored.front());
  EXPECT_THAT(test::refusal([&] { validate(twice, "config.json"); }, ErrorCategory::CorruptFile),
              testing::HasSubstr("twice"));
  const std::string text = R"({"factored_layers": {"a": {}, "a": {}}})";
  EXPECT_THAT(test::refusal([&] { parse_json(text, "config.json"); }, ErrorCategory::CorruptFile),
              testing::HasSubstr("\"a\" occurs twice"));
}

}  // namespace
}  // namespace hone::model_io
