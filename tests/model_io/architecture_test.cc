// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/architecture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "hone/core/error.h"
#include "tests/model_io/tiny_gguf.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::model_io {
namespace {

TEST(Architecture, cache_bytes_count_key_value_heads_only) {
  Architecture a = test::tiny_architecture();
  a.layers = 22;
  a.heads = 32;
  a.kv_heads = 4;
  a.head_dim = 64;
  EXPECT_EQ(a.kv_bytes_per_token(2), 22'528);
}

TEST(Architecture, parameters_are_the_sum_of_its_tensors) {
  Architecture a = test::tiny_architecture();
  // embedding and output; per layer q, k, v, o, three of the MLP, two norms; final norm
  const Index q = 64 * 32, kv = 32 * 32, mlp = 40 * 32;
  EXPECT_EQ(a.parameters(), 2 * 48 * 32 + 2 * (2 * q + 2 * kv + 3 * mlp + 2 * 32) + 32);
  a.tied_embeddings = a.attention_bias = a.mlp_bias = true;
  EXPECT_EQ(a.parameters(), 48 * 32 + 2 * (2 * q + 2 * kv + 3 * mlp + 2 * 32) + 32 +
                                2 * (64 + 32 + 32 + 32 + 40 + 40 + 32));
}

using Edit = void (*)(Architecture&);

TEST(Architecture, refuses_impossible_shapes) {
  EXPECT_NO_THROW(validate(test::tiny_architecture(), "x"));
  const std::vector<std::pair<const char*, Edit>> edits{
      {"no heads", [](Architecture& a) { a.heads = 0; }},
      {"no kv heads", [](Architecture& a) { a.kv_heads = 0; }},
      {"kv heads do not divide", [](Architecture& a) { a.kv_heads = 3; }},
      {"more kv heads than heads", [](Architecture& a) { a.kv_heads = 8; }},
      {"odd head_dim", [](Architecture& a) { a.head_dim = 15; }},
      {"head_dim 6", [](Architecture& a) { a.head_dim = 6; }},
      {"head_dim 514", [](Architecture& a) { a.head_dim = 514; }},
      {"hidden 65537", [](Architecture& a) { a.hidden_size = 65537; }},
      {"negative hidden", [](Architecture& a) { a.hidden_size = -32; }},
      {"no layers", [](Architecture& a) { a.layers = 0; }},
      {"513 layers", [](Architecture& a) { a.layers = 513; }},
      {"no vocabulary", [](Architecture& a) { a.vocab_size = 0; }},
      {"vocabulary -2^31", [](Architecture& a) { a.vocab_size = -(Index{1} << 31); }},
      {"vocabulary 2^22+1", [](Architecture& a) { a.vocab_size = (Index{1} << 22) + 1; }},
      {"no context", [](Architecture& a) { a.context = 0; }},
      {"context 2^24+1", [](Architecture& a) { a.context = (Index{1} << 24) + 1; }},
      {"eps 0", [](Architecture& a) { a.norm_eps = 0; }},
      {"eps NaN", [](Architecture& a) { a.norm_eps = std::nan(""); }},
      {"eps 0.2", [](Architecture& a) { a.norm_eps = 0.2; }},
      {"rope base 0", [](Architecture& a) { a.rope.theta = 0; }},
      {"rope base NaN", [](Architecture& a) { a.rope.theta = std::nan(""); }},
      {"rope base 1e13", [](Architecture& a) { a.rope.theta = 1e13; }},
      {"odd rotation", [](Architecture& a) { a.rope.rotary_dims = 15; }},
      {"rotation beyond the head", [](Architecture& a) { a.rope.rotary_dims = 18; }},
      {"rope factor 0",
       [](Architecture& a) {
         a.rope.scaling = RopeScaling::Linear;
         a.rope.factor = 0;
       }},
      {"equal llama3 factors",
       [](Architecture& a) {
         a.rope.scaling = RopeScaling::Llama3;
         a.rope.original_context = 32;
         a.rope.high_freq_factor = a.rope.low_freq_factor = 1;
       }},
      {"too few divisors",
       [](Architecture& a) {
         a.rope.frequency_divisors = {1, 2};
       }},
      {"divisor 0", [](Architecture& a) { a.rope.frequency_divisors.assign(8, 0); }},
      {"stop id beyond", [](Architecture& a) { a.stop_ids = {48}; }},
      {"bos beyond", [](Architecture& a) { a.bos_id = 48; }},
      {"bos negative", [](Architecture& a) { a.bos_id = -1; }}};
  for (const auto& [what, edit] : edits) {
    Architecture a = test::tiny_architecture();
    edit(a);
    try {
      validate(a, "config.json");
      ADD_FAILURE() << what << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::CorruptFile) << what;
      EXPECT_NE(std::string(error.what()).find("config.json"), std::string::npos) << what;
    }
  }
}

RopeSpec plain_rope() {
  RopeSpec rope;
  rope.theta = 10000;
  rope.rotary_dims = 8;
  return rope;
}

TEST(RopeFrequencies, follow_the_definition) {
  const RopeFrequencies plain = rope_frequencies(plain_rope());
  ASSERT_EQ(plain.inverse.size(), 4u);
  EXPECT_DOUBLE_EQ(plain.inverse[0], 1);
  EXPECT_DOUBLE_EQ(plain.inverse[1], 0.1);
  EXPECT_DOUBLE_EQ(plain.inverse[3], 1e-3);
  EXPECT_EQ(plain.attention_factor, 1);
  RopeSpec rope = plain_rope();
  rope.scaling = RopeScaling::Linear;
  rope.factor = 4;
  EXPECT_DOUBLE_EQ(rope_frequencies(rope).inverse[1], 0.025);
  rope.frequency_divisors = {1, 2, 1, 1};
  EXPECT_DOUBLE_EQ(rope_frequencies(rope).inverse[1], 0.0125);
}

TEST(RopeFrequencies, llama3_keeps_short_waves_stretches_long_ones_and_blends_between) {
  RopeSpec rope = plain_rope();
  rope.scaling = RopeScaling::Llama3;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_context = 200;  // wavelengths 6.3, 62.8, 628, 6283
  const std::vector<double> f = rope_frequencies(rope).inverse;
  EXPECT_DOUBLE_EQ(f[0], 1);
  EXPECT_DOUBLE_EQ(f[3], 1e-3 / 8);
  const double t = (200 * 0.1 / (2 * std::numbers::pi) - 1) / 3;
  EXPECT_DOUBLE_EQ(f[1], (1 - t) * 0.1 / 8 + t * 0.1);
}

TEST(RopeFrequencies, yarn_scales_attention_by_default_or_as_told) {
  RopeSpec rope = plain_rope();
  rope.scaling = RopeScaling::Yarn;
  rope.factor = 4;
  rope.original_context = 32;
  EXPECT_DOUBLE_EQ(rope_frequencies(rope).attention_factor, 0.1 * std::log(4.0) + 1);
  EXPECT_LE(rope_frequencies(rope).inverse[3], 1e-3);
  EXPECT_GE(rope_frequencies(rope).inverse[3], 1e-3 / 4);
  rope.attention_factor = 1.5;
  EXPECT_DOUBLE_EQ(rope_frequencies(rope).attention_factor, 1.5);
}

// The context after extend_context().
Index extended(RopeScaling scaling, double factor, Index original, Index context) {
  Architecture a = test::tiny_architecture();
  a.rope.scaling = scaling;
  a.rope.factor = factor;
  a.rope.original_context = original;
  a.context = context;
  extend_context(a);
  EXPECT_EQ(a.rope.original_context, original);
  return a.context;
}

// As the description of Qwen 2.5 has it: a factor of 4 over 32,768 tokens is for 131,072.
TEST(ExtendContext, yarn_reaches_its_factor_times_the_original_length) {
  for (const Index context : {1, 8192, 32'768, 131'071, 131'072}) {
    EXPECT_EQ(extended(RopeScaling::Yarn, 4, 32'768, context), 131'072) << context;
  }
  EXPECT_EQ(extended(RopeScaling::Yarn, 4, 32'768, 131'073), 131'073);
  EXPECT_EQ(extended(RopeScaling::Yarn, 4, 32'768, 262'144), 262'144);
  EXPECT_EQ(extended(RopeScaling::Yarn, 2.5, 1000, 1000), 2500);
}

TEST(ExtendContext, other_scalings_say_their_length_themselves) {
  for (const RopeScaling scaling : {RopeScaling::None, RopeScaling::Linear, RopeScaling::Llama3}) {
    EXPECT_EQ(extended(scaling, 4, 32'768, 40'000), 40'000);
  }
  EXPECT_EQ(extended(RopeScaling::Yarn, 1, 32'768, 64), 64);
  EXPECT_EQ(extended(RopeScaling::Yarn, 0.5, 32'768, 64), 64);
}

// validate() refuses such a factor or length afterwards.
TEST(ExtendContext, hostile_factors_leave_the_context_alone) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double factor : {-4.0, 0.0, std::nan(""), infinity, -infinity, 1e300}) {
    EXPECT_EQ(extended(RopeScaling::Yarn, factor, 32'768, 64), 64) << factor;
  }
  for (const Index original : {Index{0}, Index{-1}}) {
    EXPECT_EQ(extended(RopeScaling::Yarn, 4, original, 64), 64) << original;
  }
}

Index context_of_gguf(const std::function<void(GgufWriter&)>& more_keys) {
  const test::TemporaryFolder folder;
  test::write_tiny_gguf(folder.path() / "m.gguf", {GgufType::F32}, more_keys);
  return test::open_bare(folder.path() / "m.gguf")->architecture().context;
}

// The file says 64 tokens.
TEST(ExtendContext, yarn_extends_the_context_of_a_gguf_file) {
  const auto with_scaling = [](const char* type, Index original) {
    return context_of_gguf([&](GgufWriter& writer) {
      writer.set_string("llama.rope.scaling.type", type);
      writer.set_number("llama.rope.scaling.factor", 4);
      writer.set_integer("llama.rope.scaling.original_context_length", original);
    });
  };
  EXPECT_EQ(with_scaling("yarn", 32'768), 131'072);
  EXPECT_EQ(with_scaling("yarn", 64), 256);
  EXPECT_EQ(with_scaling("yarn", 16), 64);
  EXPECT_EQ(with_scaling("yarn", 8), 64);
  EXPECT_EQ(with_scaling("linear", 32'768), 64);
  EXPECT_EQ(with_scaling("none", 32'768), 64);
  EXPECT_EQ(context_of_gguf({}), 64);
  EXPECT_THROW(with_scaling("yarn", Index{1} << 23), Error) << "more than any model has";
}

}  // namespace
}  // namespace hone::model_io
