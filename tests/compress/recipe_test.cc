// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "hone/compress/compress.h"
#include "hone/compress/gate.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::compress {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
requantize = true
[calib]
data = "calib.txt"
tokens = 999
window = 128
seed = 3
[allocate]
bits = 4.25
formats = ["q4_0", "q8_0"]
tokens = 77
[eval]
data = ["text.txt", "other.txt"]
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
algo = "gptq"
clip = false
percentile = 99.5
act_order = false
damp = 0.05
act = "none"
apply = ["model.layers.*"]
except = ["*down_proj*"]
formats = ["*v_proj*=q6_k"]
[[pass]]
kind = "prune"
method = "magnitude"
sparsity = 0.7
allocation = "global"
damp = 0.2
apply = ["*mlp*"]
except = ["*up*"]
[[pass]]
kind = "structure"
group = "heads"
ratio = 0.4
round_to = 8
repair = false
damp = 0.3
apply = ["*o_proj*"]
except = ["*.0.*"]
[[pass]]
kind = "lowrank"
method = "svd"
rank = 96
ratio = 0.5
loss = 0.25
apply = ["*down*"]
except = ["*.1.*"]
)";

TEST(Recipe, every_key_arrives) {
  const Recipe recipe = parse_recipe(kEveryKey, "r.toml");
  EXPECT_EQ(recipe.keep_float, (std::vector<std::string>{"*norm*", "*q_proj*"}));
  EXPECT_EQ(recipe.head, "float");
  EXPECT_EQ(recipe.embedding, "int4:g32:asym");
  EXPECT_TRUE(recipe.requantize);
  EXPECT_EQ(recipe.calib_data, "calib.txt");
  EXPECT_EQ(recipe.calib_tokens, 999);
  EXPECT_EQ(recipe.calib_window, 128);
  EXPECT_EQ(recipe.calib_seed, 3);
  EXPECT_TRUE(recipe.allocate.is_wanted());
  EXPECT_EQ(recipe.allocate.bits, 4.25);
  EXPECT_EQ(recipe.allocate.formats, (std::vector<std::string>{"q4_0", "q8_0"}));
  EXPECT_EQ(recipe.allocate.tokens, 77);
  EXPECT_EQ(recipe.eval_data, (std::vector<std::string>{"text.txt", "other.txt"}));
  EXPECT_EQ(recipe.eval_tokens, 777);
  EXPECT_EQ(recipe.gate.max_ppl_ratio, 1.5);
  EXPECT_EQ(recipe.gate.max_kl, 0.25);
  EXPECT_EQ(recipe.gate.min_top1, 0.5);
  EXPECT_EQ(recipe.gate.min_speedup, 0.9);
  EXPECT_EQ(recipe.gate.min_bytes_saved, 10);
  EXPECT_EQ(recipe.gate.on_fail, OnFail::Keep);
  ASSERT_EQ(recipe.passes.size(), 4u);
  const auto& pass = std::get<QuantizePass>(recipe.passes[0]);
  EXPECT_EQ(pass.spec, "int4:g64:sym");
  EXPECT_EQ(pass.rounding, Rounding::Gptq);
  EXPECT_FALSE(pass.clip || pass.act_order);
  EXPECT_EQ(pass.percentile, 99.5);
  EXPECT_EQ(pass.damp, 0.05);
  EXPECT_FALSE(pass.act_int8);
  EXPECT_EQ(pass.apply, (std::vector<std::string>{"model.layers.*"}));
  EXPECT_EQ(pass.except, (std::vector<std::string>{"*down_proj*"}));
  EXPECT_EQ(pass.formats, (std::vector<std::string>{"*v_proj*=q6_k"}));
  const auto& prune = std::get<PrunePass>(recipe.passes[1]);
  EXPECT_EQ(prune.saliency, Saliency::Magnitude);
  EXPECT_TRUE(prune.global);
  EXPECT_EQ(prune.sparsity, 0.7);
  EXPECT_EQ(prune.damp, 0.2);
  EXPECT_EQ(prune.apply, (std::vector<std::string>{"*mlp*"}));
  EXPECT_EQ(prune.except, (std::vector<std::string>{"*up*"}));
  const auto& structure = std::get<StructurePass>(recipe.passes[2]);
  EXPECT_EQ(structure.part, Part::Heads);
  EXPECT_EQ(structure.ratio, 0.4);
  EXPECT_EQ(structure.round_to, 8);
  EXPECT_FALSE(structure.repair);
  EXPECT_EQ(structure.damp, 0.3);
  EXPECT_EQ(structure.apply, (std::vector<std::string>{"*o_proj*"}));
  EXPECT_EQ(structure.except, (std::vector<std::string>{"*.0.*"}));
  const auto& factor = std::get<LowRankPass>(recipe.passes[3]);
  EXPECT_FALSE(factor.whitened);
  EXPECT_EQ(factor.rank, 96);
  EXPECT_EQ(factor.ratio, 0.5);
  EXPECT_EQ(factor.loss, 0.25);
  EXPECT_EQ(factor.apply, (std::vector<std::string>{"*down*"}));
  EXPECT_EQ(factor.except, (std::vector<std::string>{"*.1.*"}));
}

TEST(Recipe, is_written_so_that_it_reads_back) {
  const Recipe recipe = parse_recipe(kEveryKey, "r.toml");
  const Recipe again = parse_recipe(to_toml(recipe), "again");
  EXPECT_EQ(to_toml(again), to_toml(recipe));
  EXPECT_EQ(again.gate.on_fail, OnFail::Keep);
  ASSERT_EQ(again.passes.size(), 4u);
  const auto& pass = std::get<QuantizePass>(again.passes[0]);
  EXPECT_FALSE(pass.act_int8 || pass.clip);
  EXPECT_EQ(pass.spec, "int4:g64:sym");
  EXPECT_EQ(pass.except, std::get<QuantizePass>(recipe.passes[0]).except);
  EXPECT_EQ(std::get<StructurePass>(again.passes[2]).part, Part::Heads);
}

TEST(Recipe, page_lists_every_key) {
  const std::string page = read_text_file(test::source_file("docs/compression.md"));
  Recipe recipe;
  recipe.passes = {QuantizePass(), PrunePass(), StructurePass(), LowRankPass()};
  std::istringstream lines(to_toml(recipe));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(" =");
    if (equals == std::string::npos) continue;
    const std::string key = line.substr(0, equals);
    EXPECT_TRUE(page.find(" " + key + "`") != page.npos || page.find("`" + key + "`") != page.npos)
        << key;
  }
}

TEST(Recipe, complaints_name_file_line_and_key) {
  const auto expect = [](const std::string& toml, const char* place, const char* what) {
    EXPECT_THAT(complaint("version = 1\n" + toml), AllOf(HasSubstr(place), HasSubstr(what)));
  };
  expect("[gate]\nmax_ppl_ration = 2\n", "[r.toml:3]", "Did you mean 'gate.max_ppl_ratio'?");
  expect("[gate]\nzebra = 2\n", "[r.toml:3]", "max_kl, min_top1, min_speedup");
  expect("[zebra]\nx = 2\n", "[r.toml:3]",
         "version, [model], [calib], [allocate], [eval], [gate], pass");
  expect("[gate]\nmin_top1 = 3\n", "[r.toml:3]", "0 to 1 for gate.min_top1, got 3.0");
  expect("[gate]\nmin_top1 = \"x\"\n", "[r.toml:3]", "a TOML number for gate.min_top1");
  expect("[gate]\non_fail = \"go\"\n", "[r.toml:3]", "skip, stop or keep for gate.on_fail");
  expect("model = 3\n", "[r.toml:2]", "'model'");
  expect("[model]\nhead = \"int99\"\n", "[r.toml:3]", "float or int<2-8>");
  expect("[eval]\ntokens = -1\n", "[r.toml:3]", "for eval.tokens");
  expect("version = \n", "[r.toml:2]", "TOML");
  EXPECT_THAT(complaint("[gate]\n"), HasSubstr("[r.toml] The key version is missing."));
  EXPECT_THAT(complaint("version = 2\n"), HasSubstr("[r.toml:1] expected 1 for version, got 2"));
}

TEST(Recipe, complaints_about_a_pass_name_its_line) {
  const auto expect = [](const std::string& keys, const char* place, const char* what) {
    const std::string good = "version = 1\n[[pass]]\nkind = \"quantize\"\n";
    EXPECT_THAT(complaint(good + "[[pass]]\n" + keys), AllOf(HasSubstr(place), HasSubstr(what)));
  };
  expect("spec = \"int8:row\"\n", "[r.toml:4]", "The key pass.kind is missing");
  expect("kind = \"distill\"\n", "[r.toml:5]",
         "quantize, prune, structure or lowrank for pass.kind, got \"distill\"");
  expect("kind = 3\n", "[r.toml:5]", "lowrank for pass.kind");
  expect("kind = \"prune\"\nspec = \"int8:row\"\n", "[r.toml:6]", "method, sparsity");
  expect("kind = \"prune\"\nsparsity = 1.5\n", "[r.toml:6]", "0 to 1 for pass.sparsity");
  expect("kind = \"structure\"\ngroup = \"head\"\n", "[r.toml:6]", "ffn, heads or layers");
  expect("kind = \"quantize\"\nspec = \"int9\"\n", "[r.toml:6]", "expected int<2-8>");
  expect("kind = \"quantize\"\nalgo = \"gptqq\"\n", "[r.toml:6]",
         "rtn, importance or gptq for pass.algo");
  expect("kind = \"quantize\"\nformats = [\"a\"]\n", "[r.toml:6]", "GLOB=FORMAT");
  expect("kind = \"quantize\"\nclip = 1\n", "[r.toml:6]", "a TOML boolean for pass.clip");
  expect("kind = \"quantize\"\nexcpt = []\n", "[r.toml:6]", "Did you mean 'pass.except'?");
  expect("kind = \"quantize\"\nmore.x = 1\n", "[r.toml:6]", "kind, spec, algo");
  for (const char* pass : {"pass = 3\n", "pass = [1]\n", "[pass]\nkind = \"quantize\"\n"}) {
    EXPECT_THAT(complaint(std::string("version = 1\n") + pass),
                AllOf(HasSubstr("[r.toml:2]"), HasSubstr("[[pass]] tables")))
        << pass;
  }
}

TEST(QuantizeOption, takes_spec_algorithm_and_noclip_in_any_order) {
  EXPECT_EQ(parse_quantize_option("int4:g32").spec, "int4:g32:asym");
  EXPECT_TRUE(parse_quantize_option("int8:row").clip);
  const QuantizePass pass = parse_quantize_option("int4:g128:sym:rtn:noclip");
  EXPECT_EQ(pass.spec, "int4:g128:sym");
  EXPECT_FALSE(pass.clip);
  EXPECT_THROW(parse_quantize_option(""), Error);
  EXPECT_THROW(parse_quantize_option("int4:gptqq"), Error);
  EXPECT_THROW(parse_quantize_option("int4:g7"), Error);
  EXPECT_THROW(parse_quantize_option("float"), Error) << "no pass makes it";
  EXPECT_EQ(parse_quantize_option("int8:row:percentile").percentile, 99.9);
  EXPECT_EQ(parse_quantize_option("q4_0:gptq").rounding, Rounding::Gptq);
  EXPECT_EQ(parse_quantize_option("int3:g64:importance").rounding, Rounding::Importance);
}

TEST(Preset, is_a_recipe) {
  for (const bool gguf : {false, true}) {
    for (const std::string_view name : preset_names()) {
      const Recipe recipe = make_preset(name, gguf);
      EXPECT_EQ(to_toml(parse_recipe(to_toml(recipe), "r")), to_toml(recipe));
      EXPECT_EQ(needs_calibration(recipe), name == "small");
      EXPECT_EQ(recipe.allocate.is_wanted(), name == "small");
    }
  }
  EXPECT_THAT(hone::test::refusal([] { make_preset("tiny", true); }), HasSubstr("safe or small"));
}

TEST(PruneOption, takes_a_method_and_a_fraction) {
  const auto wanda = std::get<PrunePass>(parse_prune_option("wanda:0.5"));
  EXPECT_EQ(wanda.saliency, Saliency::Wanda);
  EXPECT_EQ(wanda.sparsity, 0.5);
  EXPECT_TRUE(std::get<PrunePass>(parse_prune_option("magnitude:0.25:global")).global);
  EXPECT_EQ(std::get<StructurePass>(parse_prune_option("layers:0.1")).part, Part::Layers);
  EXPECT_FALSE(std::get<StructurePass>(parse_prune_option("ffn:0.25:norepair")).repair);
  for (const char* bad : {"", "ffn", "ffn:", "ffn:0", "ffn:1", "ffn:nan", "ffn:0.2x", "wanda:-1",
                          "wanda:0.5:global", "layers:0.1:norepair", "rows:0.5", "ffn:0.5:x"}) {
    try {
      parse_prune_option(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("magnitude:S[:global]")) << bad;
    }
  }
}

TEST(LowRankOption, takes_a_method_and_a_size) {
  EXPECT_EQ(parse_low_rank_option("whitened:0.25").ratio, 0.25);
  EXPECT_TRUE(parse_low_rank_option("whitened:0.25").whitened);
  EXPECT_EQ(parse_low_rank_option("svd:rank=96").rank, 96);
  EXPECT_FALSE(parse_low_rank_option("svd:rank=96").whitened);
  EXPECT_EQ(parse_low_rank_option("whitened:loss=0.05").loss, 0.05);
  for (const char* bad : {"", "svd", "svd:", "svd:0", "svd:1", "svd:rank=0", "svd:rank=1.5",
                          "svd:rank=", "svd:loss=2", "pca:0.5", "svd:0.5x", "svd:nan"})
    EXPECT_THAT(hone::test::refusal([&] { parse_low_rank_option(bad); }),
                HasSubstr("whitened:R or svd:R"))
        << bad;
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
                           .kl_high = 0.02,
                           .top1_agreement = 0.99,
                           .top1_low = 0.98,
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
               {{.max_kl = 0.015}, "KL"},
               {{.min_top1 = 0.985}, "top-1"},
               {{.min_speedup = 1.9}, "speed-up"},
               {{.min_bytes_saved = 701}, "saves"}};
  for (const auto& [gate, word] : cases) {
    record = good_record();
    apply_gate(gate, record);
    EXPECT_EQ(record.status, Status::Skipped);
    EXPECT_NE(record.reason.find(word), std::string::npos) << record.reason;
  }
}

TEST(Gate, names_every_gate_that_does_not_hold_quality_first) {
  PassRecord record = good_record();
  apply_gate({.max_ppl_ratio = 1.012, .min_speedup = 1.9, .min_bytes_saved = 701}, record);
  const std::size_t quality = record.reason.find("perplexity"), bytes = record.reason.find("saves"),
                    speed = record.reason.find("speed-up");
  EXPECT_LT(quality, bytes) << record.reason;
  EXPECT_LT(bytes, speed) << record.reason;
  EXPECT_NE(speed, std::string::npos) << record.reason;
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
