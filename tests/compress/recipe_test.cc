// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/recipe.h"

#include <gtest/gtest.h>

#include "hone/compress/gate.h"
#include "hone/core/error.h"

namespace hone::compress {
namespace {

std::string complaint(const std::string& toml) {
  try {
    parse_recipe(toml, "r.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << toml;
  return {};
}

constexpr const char* kEveryKey = R"(version = 1
[model]
keep_float = ["*norm*", "*q_proj*"]
head = "float"
embedding = "int4:g32:asym"
[eval]
data = "text.txt"
tokens = 777
[gate]
max_ppl_ratio = 1.5
max_kl = 0.25
min_top1 = 0.5
min_speedup = 0.9
min_bytes_saved = 10
on_fail = "keep"
[[pass]]
kind = "quantize"
spec = "int4:g64:sym"
algo = "rtn"
clip = false
act = "none"
apply = ["model.layers.*"]
except = ["*down_proj*"]
)";

TEST(Recipe, every_key_arrives) {
  const Recipe recipe = parse_recipe(kEveryKey, "r.toml");
  EXPECT_EQ(recipe.keep_float, (std::vector<std::string>{"*norm*", "*q_proj*"}));
  EXPECT_EQ(recipe.head, "float");
  EXPECT_EQ(recipe.embedding, "int4:g32:asym");
  EXPECT_EQ(recipe.eval_data, "text.txt");
  EXPECT_EQ(recipe.eval_tokens, 777);
  EXPECT_EQ(recipe.gate.max_ppl_ratio, 1.5);
  EXPECT_EQ(recipe.gate.max_kl, 0.25);
  EXPECT_EQ(recipe.gate.min_top1, 0.5);
  EXPECT_EQ(recipe.gate.min_speedup, 0.9);
  EXPECT_EQ(recipe.gate.min_bytes_saved, 10);
  EXPECT_EQ(recipe.gate.on_fail, OnFail::Keep);
  ASSERT_EQ(recipe.passes.size(), 1u);
  const QuantizePass& pass = recipe.passes[0];
  EXPECT_EQ(to_text(pass.spec), "int4:g64:sym");
  EXPECT_FALSE(pass.clip);
  EXPECT_FALSE(pass.act_int8);
  EXPECT_EQ(pass.apply, (std::vector<std::string>{"model.layers.*"}));
  EXPECT_EQ(pass.except, (std::vector<std::string>{"*down_proj*"}));
}

TEST(Recipe, is_written_so_that_it_reads_back) {
  const Recipe recipe = parse_recipe(kEveryKey, "r.toml");
  EXPECT_EQ(to_toml(parse_recipe(to_toml(recipe), "again")), to_toml(recipe));
}

TEST(Recipe, complaints_name_file_line_and_the_nearest_key) {
  EXPECT_NE(complaint("version = 1\n[gate]\nmax_ppl_ration = 2\n").find("r.toml:3"),
            std::string::npos);
  EXPECT_NE(complaint("version = 1\n[gate]\nmax_ppl_ration = 2\n").find("max_ppl_ratio"),
            std::string::npos);
  EXPECT_NE(complaint("version = 1\n[[pass]]\nkind = \"quantize\"\n").find("quantize"),
            std::string::npos);
  EXPECT_NE(
      complaint("version = 1\n[[pass]]\nkind = \"quantize\"\nspec = \"int9\"\n").find("r.toml:4"),
      std::string::npos);
  EXPECT_NE(complaint("version = 1\n[gate]\nmin_top1 = 3\n").find("between 0 and 1"),
            std::string::npos);
  complaint("[gate]\n");
  complaint("version = 2\n");
  complaint("version = 1\nmodel = 3\n");
  complaint("version = 1\n[[pass]]\nspec = \"int8:row\"\n");
  complaint("version = 1\n[model]\nhead = \"int99\"\n");
  complaint("version = 1\npass = [1]\n");
  complaint("version = \n");
}

TEST(QuantizeOption, takes_spec_algorithm_and_noclip_in_any_order) {
  EXPECT_EQ(to_text(parse_quantize_option("int4:g32").spec), "int4:g32:asym");
  EXPECT_TRUE(parse_quantize_option("int8:row").clip);
  const QuantizePass pass = parse_quantize_option("int4:g128:sym:rtn:noclip");
  EXPECT_EQ(to_text(pass.spec), "int4:g128:sym");
  EXPECT_FALSE(pass.clip);
  EXPECT_THROW(parse_quantize_option(""), Error);
  EXPECT_THROW(parse_quantize_option("int4:gptqq"), Error);
  EXPECT_THROW(parse_quantize_option("int4:g7"), Error);
  for (const char* text : {"float", "int8:tensor", "int8:row:bf16"}) {
    EXPECT_THROW(parse_quantize_option(text), Error) << text << ": no pass makes it";
  }
}

PassRecord good_record() {
  PassRecord record;
  record.bytes_before = 1000;
  record.bytes_after = 300;
  record.ms_after.n = 30;
  record.speedup = {2, 1.8, 2.2};
  record.quality = Quality{.ppl_ratio = 1.01,
                           .ppl_ratio_low = 1.005,
                           .ppl_ratio_high = 1.015,
                           .kl_mean = 0.01,
                           .top1_agreement = 0.99,
                           .card = {}};
  return record;
}

TEST(Gate, holds_at_the_unfavorable_end_of_each_interval) {
  PassRecord record = good_record();
  apply_gate(Gate{}, record);
  EXPECT_EQ(record.status, Status::Applied);
  const struct {
    Gate gate;
    const char* word;
  } cases[] = {{{.max_ppl_ratio = 1.012}, "perplexity"},
               {{.max_kl = 0.005}, "KL"},
               {{.min_top1 = 0.995}, "top-1"},
               {{.min_speedup = 1.9}, "speed-up"},
               {{.min_bytes_saved = 701}, "saves"}};
  for (const auto& [gate, word] : cases) {
    record = good_record();
    apply_gate(gate, record);
    EXPECT_EQ(record.status, Status::Skipped);
    EXPECT_NE(record.reason.find(word), std::string::npos) << record.reason;
  }
}

TEST(Gate, on_fail_decides_how_a_broken_gate_ends) {
  Gate gate{.min_speedup = 5};
  PassRecord record = good_record();
  gate.on_fail = OnFail::Stop;
  apply_gate(gate, record);
  EXPECT_EQ(record.status, Status::Failed);
  gate.on_fail = OnFail::Keep;
  apply_gate(gate, record);
  EXPECT_EQ(record.status, Status::Applied);
  EXPECT_NE(record.reason.find("kept"), std::string::npos);
}

}  // namespace
}  // namespace hone::compress
