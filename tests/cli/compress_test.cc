// SPDX-License-Identifier: Apache-2.0
// What `hone compress` makes of recipes, options and models that it cannot use.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <set>

#include "hone/core/file/file_io.h"
#include "hone/core/file/folder_lock.h"
#include "tests/cli/cli_fixture.h"
#include "tests/model_io/metadata/described_model.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Compress : public Cli {
 protected:
  std::string write_recipe(const std::string& text) const {
    write_text_file(path("recipe.toml"), "version = 1\n" + text);
    return path("recipe.toml");
  }
};

TEST_F(Compress, spares_its_inputs_and_says_why_nothing_is_written) {
  const std::string model = write_tiny_model(), out = path("small");
  ASSERT_EQ(run_hone({"compress", model, "-o", out, "--quantize", "int8:row"}).status, 0);
  write_text_file(out + "/recipe.toml",
                  "version = 1\n[[pass]]\nkind = \"quantize\"\nspec = \"int8:row\"\n");
  write_text_file(path("text.txt"), read_text_file(out + "/recipe.toml"));
  expect_refusal({"compress", model, "-o", out, "--recipe", out + "/recipe.toml"}, 2,
                 "must not contain the input");
  fs::copy_file(path("text.txt"), out + "/t.txt");
  expect_refusal({"compress", model, "-o", out, "--quantize", "int8:row", "--data", out + "/t.txt"},
                 2, "must not contain the input");
  expect_refusal({"compress", model, "-o", out, "--quantize", "int8:row"}, 2,
                 "not part of a model");
  EXPECT_TRUE(fs::exists(out + "/t.txt"));
}

TEST_F(Compress, names_what_it_cannot_use) {
  const std::string model = write_tiny_model(), out = path("small");
  const auto refuse = [&](const Arguments& more, int status) {
    expect_refusal(Arguments{"compress", model, "-o", out} + more, status);
    EXPECT_FALSE(fs::exists(out));
  };
  write_text_file(path("empty.txt"), "");
  write_text_file(path("short.txt"), "abc");
  write_text_file(path("latin.txt"), "caf\xe9 au lait, please\n");
  for (const char* data : {"none", "empty.txt", "short.txt", "latin.txt"})
    refuse({"--quantize", "int8:row", "--data", path(data)}, 3);
  refuse({"--quantize", "int8:row", "--recipe", path("none.toml")}, 2);
  refuse({"--recipe", path("none.toml")}, 3);
  refuse({"--recipe", folder_.path().string()}, 3);
  const std::string grammar =
      "int<2-8> or log<2-8>:<row|tensor|gN>[:sym|:asym][:f32|:f16], N a multiple of 16";
  for (const char* spec : {"int9:row", "float", "q4_2", "q4_0:gptqq"}) {
    refuse({"--quantize", spec}, 2);
    EXPECT_THAT(run_hone({"compress", model, "-o", out, "--quantize", spec}).err,
                HasSubstr(grammar));
  }
  std::string help = run_hone({"compress", "--help"}).out;
  for (const char c : {'\n', ' '}) std::erase(help, c);  // CLI11 breaks lines
  std::string wanted = grammar;
  std::erase(wanted, ' ');
  EXPECT_THAT(help, HasSubstr(wanted));
}

TEST_F(Compress, refuses_keys_without_an_end) {
  std::string key = "a";
  for (int i = 0; i < 50'000; ++i) key += ".a";
  const std::string file = path("d.toml"), model = write_tiny_model();
  for (const std::string& text :
       {key + "=1", "[" + key + "]", "[[" + key + "]]", "a={" + key + "=1}"}) {
    write_text_file(file, text);
    expect_refusal({"compress", model, "-o", path("small"), "--recipe", file}, 2);
  }
}

// The rows of the tiny model have 32, 40 and 64 columns.
TEST_F(Compress, refuses_groups_beyond_the_row_before_anything_is_written) {
  const std::string model = write_tiny_model(), out = path("small");
  const auto refuse = [&](const Arguments& more, const char* spec) {
    const ProgramResult result = run_hone(Arguments{"compress", model, "-o", out} + more);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr(spec), HasSubstr("32 columns of model.")));
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(fs::exists(out));
  };
  refuse({"--quantize", "int4:g48"}, "int4:g48");
  refuse({"--quantize", "int4:g4096:sym"}, "int4:g4096:sym");
  refuse({"--quantize", "int8:row", "--quantize", "int4:g4096"}, "int4:g4096");
  write_text_file(
      path("r.toml"),
      "version = 1\n[model]\nembedding = \"int8:g64\"\n[[pass]]\nkind = \"quantize\"\n");
  refuse({"--recipe", path("r.toml")}, "int8:g64");
  EXPECT_EQ(run_hone({"compress", model, "-o", out, "--quantize", "int4:g32"}).status, 0);
}

TEST_F(Compress, takes_the_tokenizer_that_a_model_lacks_and_eval_does_too) {
  const std::string with = write_tiny_model(), out = path("small"), bare = path("bare");
  write_hugging_face(bare, TinyModel(tiny_architecture()).source());
  const Arguments compress{"compress", bare, "-o", out, "--quantize", "int8:row"};
  expect_refusal(compress, 3, "no tokenizer");
  const Json made = json_of(compress + Arguments{"--tokenizer", with});
  EXPECT_EQ(made["passes"][0]["status"], "applied");
  EXPECT_EQ(run_hone({"generate", out, "-p", "a", "-n", "2"}).status, 0) << "it has one now";
  write_text_file(path("text.txt"), "abc def ghi jkl mno pqr stu vwx yz");
  const Arguments eval{"eval", bare, "--baseline", bare, "--data", path("text.txt")};
  expect_refusal(eval, 3, "no tokenizer");
  EXPECT_EQ(json_of(eval + Arguments{"--tokenizer", with})["ppl_ratio"], 1.0);
}

// The sum of the parts is the file, and the line about it is that of what lies there.
void expect_sizes(const Json& sizes, const std::string& out) {
  Index sum = 0;
  for (const auto& [name, bytes] : sizes["parts"].items()) sum += bytes.get<Index>();
  EXPECT_EQ(sum, sizes["file_bytes"].get<Index>()) << sizes.dump();
  EXPECT_EQ(fs::file_size(out + "/model.safetensors"), sizes["file_bytes"].get<Index>());
  Index bytes = 0, elements = 0;
  const Json inspected = json_of({"inspect", out});
  for (const Json& tensor : inspected["tensors"]) {
    bytes += tensor["bytes"].get<Index>();
    Index size = 1;
    for (const Json& side : tensor["shape"]) size *= side.get<Index>();
    elements += size;
  }
  EXPECT_DOUBLE_EQ(sizes["bits_per_weight"].get<double>(),
                   8.0 * static_cast<double>(bytes) / static_cast<double>(elements));
}

TEST_F(Compress, rounds_quantized_matrices_again_where_they_become_smaller) {
  const std::string model = path("m.gguf"), out = path("small");
  write_described_gguf(model, {GgufType::Q5_0});
  const Json made =
      json_of({"compress", model, "-o", out, "--quantize", "int4:g32", "--requantize"});
  const Json& pass = made["passes"][0];
  EXPECT_EQ(pass["status"], "applied");
  EXPECT_EQ(pass["rounded_again"], 7);
  EXPECT_EQ(pass["evidence"].size(), 7u);
  EXPECT_EQ(pass["evidence"][0]["from"], "q5_0");
  // int8:row, the default of embedding and output, has 8.125 bits per weight instead of 5.5.
  ASSERT_EQ(pass["kept"].size(), 2u);
  EXPECT_EQ(pass["kept"][0]["type"], "q5_0");
  EXPECT_THAT(pass["kept"][0]["reason"].get<std::string>(),
              AllOf(HasSubstr("5.50"), HasSubstr("8.12")));
  const Json types = json_of({"inspect", out})["types"];
  EXPECT_EQ(types["q5_0"]["tensors"], 2);
  EXPECT_EQ(types.at(pass["evidence"][0]["spec"].get<std::string>()).at("tensors"), 7);
  expect_sizes(made["sizes"], out);
  EXPECT_LT(fs::file_size(out + "/model.safetensors"), fs::file_size(model));
  EXPECT_EQ(run_hone({"generate", out, "-p", "a", "-n", "2"}).status, 0);
  const ProgramResult again =
      run_hone({"compress", model, "-o", out, "--quantize", "int4:g32", "--requantize"});
  EXPECT_THAT(again.out, AllOf(HasSubstr("7 of them were quantized already"),
                               HasSubstr("2 more stay as they are")));
  EXPECT_THAT(again.err, HasSubstr("start from the original weights"));
}

// Calibrated by a text that the model writes itself, so that a model alone is enough.
TEST_F(Compress, gptq_writes_a_gguf_that_runs_and_is_the_same_again) {
  const std::string model = write_tiny_model(), out = path("small.gguf");
  const Arguments command{"compress",       model, "-o", out, "--quantize", "q4_0:gptq",
                          "--calib-tokens", "300"};
  const Json made = json_of(command);
  EXPECT_EQ(made["calibration"]["tokens"], 256);
  const Json& pass = made["passes"][0];
  EXPECT_EQ(pass["status"], "applied");
  for (const Json& row : pass["evidence"]) {
    if (!row.contains("output_error")) continue;  // embedding and head
    EXPECT_LE(row["output_error"].get<double>(), row["output_error_rounded"].get<double>());
    EXPECT_LE(row["sqnr_db"].get<double>(), row["rate_distortion_db"].get<double>());
    EXPECT_GT(row["code_entropy"].get<double>(), 1);
  }
  EXPECT_EQ(made["sizes"]["file_bytes"], static_cast<Index>(fs::file_size(out)));
  EXPECT_EQ(json_of({"inspect", out})["types"]["q4_0"]["tensors"], 12);
  ASSERT_EQ(pass["kept"].size(), 2u);  // rows of 40 are no whole blocks
  EXPECT_THAT(pass["kept"][0]["reason"].get<std::string>(), HasSubstr("40 columns"));
  EXPECT_EQ(run_hone({"generate", out, "-p", "a", "-n", "2"}).status, 0);
  const std::string bytes = read_text_file(out);
  for (const char* threads : {"1", "3"}) {
    json_of(command + Arguments{"--threads", threads});
    EXPECT_TRUE(read_text_file(out) == bytes) << threads;
  }
}

TEST_F(Compress, a_budget_is_kept_and_its_plan_is_a_recipe_that_gives_the_same_file) {
  model_io::Architecture architecture = tiny_architecture();
  architecture.intermediate_size = 64;
  const TinyModel tiny(architecture);
  const auto tokenizer = text::make_tokenizer(tiny_sentencepiece(architecture.vocab_size));
  const std::string model = path("m.gguf"), out = path("small.gguf"), again = path("again.gguf");
  model_io::write_gguf(model, tiny.source(tokenizer.get()), model_io::StoreType::F32);
  const Arguments budget{"--bits", "5.5", "--calib-tokens", "256"};
  const Json plan = json_of(Arguments{"compress", model, "-o", out, "--plan"} + budget);
  EXPECT_FALSE(fs::exists(out));
  const Json made = json_of(Arguments{"compress", model, "-o", out} + budget);
  EXPECT_EQ(made["allocation"], plan["allocation"]);
  EXPECT_LE(made["sizes"]["bits_per_weight"].get<double>(), 5.6);  // norms are f32
  EXPECT_GT(made["sizes"]["bits_per_weight"].get<double>(), 4.5);
  std::set<std::string> formats;
  double sum = 0;
  for (const Json& group : plan["allocation"]["groups"]) {
    formats.insert(group["format"].get<std::string>());
    sum += group["kl"].get<double>();
  }
  EXPECT_GT(formats.size(), 1u);
  EXPECT_NEAR(plan["allocation"]["predicted_kl"].get<double>(), sum, 1e-12);
  write_text_file(path("plan.toml"),
                  run_hone(Arguments{"compress", model, "-o", out, "--plan"} + budget).out);
  fs::remove(again);
  json_of({"compress", model, "-o", again, "--recipe", path("plan.toml"), "--on-fail", "keep"});
  EXPECT_TRUE(read_text_file(again) == read_text_file(out));
  const auto size = static_cast<double>(fs::file_size(out)) / 1e6;
  json_of({"compress", model, "-o", again, "--size", concat(size, "MB"), "--calib-tokens", "256"});
  EXPECT_LE(fs::file_size(again), fs::file_size(out) + 100);
}

TEST_F(Compress, refuses_budgets_that_it_cannot_keep) {
  const std::string model = write_tiny_model(), out = path("small");
  const Arguments start{"compress", model, "-o", out};
  expect_refusal(start + Arguments{"--bits", "1.5"}, 2, "at least");
  for (const char* size : {"0MB", "-1MB", "90", "MB", "1TB", "nanMB", "1e99GB"})
    expect_refusal(start + Arguments{"--size", size}, 2, "90MB");
  expect_refusal(start, 2, "--quantize");
  expect_refusal(start + Arguments{"--bits", "4", "--size", "1MB"}, 2);
  expect_refusal(start + Arguments{"--bits", "nan"}, 2, "--bits");
  EXPECT_FALSE(fs::exists(path("small.resume"))) << "it was refused after some work";
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(Compress, refuses_a_calibration_text_that_the_card_is_measured_on) {
  const std::string model = write_tiny_model(), out = path("small");
  std::string text;
  for (int i = 0; i < 400; ++i) text += "a cab fed a bee bad face ";
  write_text_file(path("text.txt"), text);
  expect_refusal({"compress", model, "-o", out, "--quantize", "int4:g32:gptq", "--calib",
                  path("text.txt"), "--data", path("text.txt")},
                 2, "runs of 32 tokens");
  expect_refusal(
      {"compress", model, "-o", out, "--quantize", "int4:g32:gptq", "--calib", path("absent.txt")},
      3, "absent.txt");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(Compress, keeps_the_codes_of_quantized_matrices_unless_it_is_told_not_to) {
  const std::string model = path("m.gguf"), out = path("small");
  write_described_gguf(model, {GgufType::Q5_0});
  expect_refusal({"compress", model, "-o", out, "--quantize", "int4:g32"}, 2, "--requantize");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(Compress, refuses_a_spec_that_makes_no_matrix_smaller) {
  const std::string model = path("m.gguf"), out = path("small");
  write_described_gguf(model, {GgufType::Q4_1});
  for (const char* spec : {"int8:row", "int5:g32"}) {
    EXPECT_THAT(expect_refusal({"compress", model, "-o", out, "--quantize", spec, "--requantize"},
                               2, "q4_1 has 5.00 bits per weight"),
                HasSubstr(spec));
  }
  expect_refusal({"compress", write_tiny_model(), "-o", out, "--recipe", write_recipe(R"(
[model]
head = "float"
[[pass]]
kind = "quantize"
apply = ["lm_head*"]
)")},
                 2, "No matrix");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(Compress, ends_with_1_and_its_document_when_a_gate_does_not_hold) {
  const std::string model = write_tiny_model(), out = path("small");
  const auto run = [&](const std::string& recipe, const Arguments& more = {}) {
    return run_hone(
        Arguments{"compress", model, "-o", out, "--recipe", write_recipe(recipe), "--json"} + more);
  };
  const std::string gate = "[gate]\nmin_speedup = 0\nmax_ppl_ratio = 0\nmin_bytes_saved = 5000\n",
                    small = "[[pass]]\nkind = \"quantize\"\napply = [\"*layers.0*k_proj*\"]\n",
                    large = "[[pass]]\nkind = \"quantize\"\n";
  for (const char* on_fail : {"skip", "stop"}) {
    const ProgramResult none = run(gate + small, {"--on-fail", on_fail});
    EXPECT_EQ(none.status, 1);
    const Json document = parse_json(none.out, "stdout");
    EXPECT_EQ(document["passes"][0]["status"],
              std::string_view(on_fail) == "skip" ? "skipped" : "failed");
    EXPECT_TRUE(document["sizes"].is_null());
    EXPECT_THAT(none.err, HasSubstr("nothing was written"));
    EXPECT_FALSE(fs::exists(out));
  }
  const ProgramResult kept = run(gate + small, {"--on-fail", "keep"});
  EXPECT_EQ(kept.status, 0) << kept.err;
  const ProgramResult part = run(gate + small + large);
  EXPECT_EQ(part.status, 1);
  const Json document = parse_json(part.out, "stdout");
  EXPECT_EQ(document["passes"][0]["status"], "skipped");
  EXPECT_EQ(document["passes"][1]["status"], "applied");
  expect_sizes(document["sizes"], out);
  // The card is that of the last pass that was applied.
  const std::string feed_forward = large + "apply = [\"*mlp*\"]\n";
  const Json vetoed = parse_json(run(gate + feed_forward + small).out, "stdout");
  EXPECT_EQ(vetoed["passes"][1]["status"], "skipped");
  EXPECT_TRUE(vetoed["passes"][0]["quality"].is_object());
  EXPECT_TRUE(vetoed["quality"].is_object());
}

TEST_F(Compress, carries_what_the_model_says_of_itself) {
  const std::string model = path("m.gguf"), out = path("small");
  write_described_gguf(model, {GgufType::Q8_0});
  json_of({"compress", model, "-o", out, "--quantize", "int4:g32", "--requantize"});
  const Json before = json_of({"inspect", model}), after = json_of({"inspect", out});
  for (const char* key : {"name", "license", "chat_template"}) EXPECT_EQ(before[key], after[key]);
  EXPECT_EQ(after["license"], "apache-2.0");
  EXPECT_EQ(after["chat_template"], true);
}

TEST_F(Compress, writes_pruned_models_as_folders_and_gguf_that_other_programs_open) {
  const std::string model = write_tiny_model();
  const Json folder = json_of({"compress", model, "-o", path("small"), "--to", "hf", "--prune",
                               "ffn:0.5", "--prune", "heads:0.5", "--calib-tokens", "256"});
  ASSERT_EQ(folder["passes"].size(), 2u);
  EXPECT_TRUE(folder["passes"][0]["quality"].is_null()) << "measured once, at the end";
  EXPECT_FALSE(folder["passes"][1]["quality"].is_null());
  const Json config = read_json_file(path("small") + "/config.json");
  EXPECT_EQ(config["architectures"][0], "LlamaForCausalLM");
  EXPECT_EQ(config["intermediate_size"], 20);
  EXPECT_EQ(config["num_attention_heads"], 2);
  EXPECT_FALSE(config.contains("layer_intermediate_sizes"));
  const Json gguf = json_of({"compress", model, "-o", path("small.gguf"), "--prune", "ffn:0.5",
                             "--prune", "heads:0.5", "--calib-tokens", "256"});
  EXPECT_NEAR(gguf["quality"]["kl_mean"].get<double>(), folder["quality"]["kl_mean"].get<double>(),
              1e-4);
  EXPECT_EQ(folder["quality"]["layers"].size(), 3u);
  EXPECT_EQ(folder["quality"]["other_texts"].size(), 0u);
  for (const char* key : {"resident_bytes", "file_bytes"}) EXPECT_GT(gguf["sizes"][key], 0) << key;
}

TEST_F(Compress, forecasts_and_writes_nothing_with_plan) {
  const std::string model = write_tiny_model();
  for (const Arguments& more : std::vector<Arguments>{{"--quantize", "int8:row"},
                                                      {"--preset", "safe"},
                                                      {"--prune", "wanda:0.5"},
                                                      {"--lowrank", "svd:rank=16"}}) {
    const Json plan = json_of(Arguments{"compress", model, "-o", path("small"), "--plan"} + more);
    const Json made =
        json_of(Arguments{"compress", model, "-o", path("made"), "--calib-tokens", "256"} + more);
    const auto forecast = plan["forecast"]["file_bytes"].get<double>();
    EXPECT_NEAR(forecast / made["sizes"]["file_bytes"].get<double>(), 1, 0.35) << more[1];
    EXPECT_GT(plan["forecast"]["peak_bytes"], 0);
    EXPECT_GE(plan["forecast"]["minutes"], 0);
    EXPECT_FALSE(plan.contains("passes"));
    EXPECT_FALSE(fs::exists(path("small")));
    EXPECT_FALSE(fs::exists(path("small.resume")));
    fs::remove_all(path("made"));
  }
}

// A GGUF has no such codes, and would hold the matrices as f16.
TEST_F(Compress, refuses_formats_that_a_gguf_does_not_hold) {
  const std::string model = write_tiny_model(), out = path("small.gguf");
  const auto refuse = [&](const Arguments& more, const char* what) {
    EXPECT_THAT(expect_refusal(Arguments{"compress", model, "-o", out} + more, 2, what),
                HasSubstr("q4_0"));
    EXPECT_FALSE(fs::exists(out));
  };
  refuse({"--quantize", "int4:g32"}, "int4:g32");
  refuse({"--recipe", write_recipe("[allocate]\nbits = 5\nformats = [\"q8_0\", \"log4:g32\"]\n"
                                   "[[pass]]\nkind = \"quantize\"\nspec = \"q8_0\"\n")},
         "log4:g32");
  refuse({"--recipe", write_recipe("[model]\nhead = \"int8:row\"\n"
                                   "[[pass]]\nkind = \"quantize\"\nspec = \"q8_0\"\n")},
         "int8:row");
  ASSERT_EQ(::mkfifo(out.c_str(), 0600), 0);
  expect_refusal({"compress", model, "-o", out, "--quantize", "q8_0"}, 2, "pipe");
  EXPECT_FALSE(fs::exists(path("small.gguf.resume")));
}

TEST_F(Compress, warns_of_calibration_that_is_short_or_has_no_use) {
  const std::string model = write_tiny_model();
  write_text_file(path("hi.txt"), "a bad cab");
  const auto said = [&](const char* spec) {
    const ProgramResult result = run_hone(
        {"compress", model, "-o", path("small"), "--quantize", spec, "--calib", path("hi.txt")});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(said("int8:row:gptq"), HasSubstr("says little"));
  EXPECT_THAT(said("int8:row"), HasSubstr("no pass of this run needs"));
}

TEST_F(Compress, says_what_cannot_be_combined) {
  const std::string model = write_tiny_model();
  const auto refuse = [&](const Arguments& more, int status, const char* what) {
    expect_refusal(Arguments{"compress", model, "-o", path("small")} + more, status, what);
    EXPECT_FALSE(fs::exists(path("small.resume")));
  };
  expect_refusal({"compress", model, "-o", path("x.gguf"), "--lowrank", "svd:0.5"}, 4,
                 "factored products");
  write_text_file(path("r.toml"),
                  "version = 1\n[[pass]]\nkind = \"structure\"\nexcept = [\"*layers.0.*\"]\n");
  expect_refusal({"compress", model, "-o", path("x.gguf"), "--recipe", path("r.toml")}, 4,
                 "layers of different widths");
  refuse({"--bits", "4", "--to", "hf"}, 2, "no budget");
  refuse({"--prune", "ffn:0"}, 2, "between 0 and 1");
  refuse({"--prune", "taylor:0.5"}, 2, "magnitude:S");
  refuse({"--lowrank", "svd"}, 2, "svd:R");
  refuse({"--preset", "huge", "--bits", "4"}, 2, "huge");
  write_text_file(path("r.toml"),
                  "version = 1\n[[pass]]\nkind = \"lowrank\"\nrank = 16\n[[pass]]\nkind = "
                  "\"structure\"\n");
  refuse({"--recipe", path("r.toml")}, 2, "before its products are factored");
  write_text_file(path("r.toml"), "version = 1\n[[pass]]\nkind = \"lowrank\"\n");
  refuse({"--recipe", path("r.toml")}, 2, "one of rank, ratio and loss");
}

// The windows of a calibration file fit into the context, which is 64 tokens here.
TEST_F(Compress, takes_a_calibration_file_for_a_short_context) {
  const std::string model = write_tiny_model();
  std::string text;
  for (int i = 0; i < 400; ++i) text += "abc def " + std::to_string(i * 7919) + "\n";
  write_text_file(path("calib.txt"), text);
  const Json made = json_of({"compress", model, "-o", path("small"), "--quantize", "int8:row:gptq",
                             "--calib", path("calib.txt")});
  EXPECT_EQ(made["passes"][0]["status"], "applied");
  EXPECT_EQ(made["quality"]["other_texts"].size(), 1u);
}

TEST_F(Compress, refuses_a_second_run_to_the_same_output) {
  const std::string model = write_tiny_model();
  const FolderLock other(path("small.resume"));
  const ProgramResult result =
      run_hone({"compress", model, "-o", path("small"), "--quantize", "int8:row"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("Another run"));
}

// A run that was killed after some layers continues, and its weights have the same bytes.
TEST_F(Compress, continues_after_a_kill_to_the_same_bytes) {
  const auto tokenizer = text::make_tokenizer(tiny_sentencepiece(48));
  model_io::Architecture a = tiny_architecture();
  a.layers = 12;
  a.hidden_size = 256;
  a.intermediate_size = 512;
  a.context = 256;
  const TinyModel model(a);
  write_hugging_face(path("big"), model.source(tokenizer.get()));
  const std::string original = read_text_file(path("big") + "/model.safetensors");
  const auto arguments = [&](const std::string& out) {
    return Arguments{"compress",       path("big"), "-o",         path(out),
                     "--prune",        "ffn:0.25",  "--quantize", "int4:g32:gptq",
                     "--calib-tokens", "512"};
  };
  ASSERT_EQ(run_hone(arguments("whole")).status, 0);
  EXPECT_FALSE(fs::exists(path("whole.resume")));
  for (const char* last : {"pass0-layer3", "pass0-rest", "pass1-layer7"}) {
    Program program(hone_argv(arguments("small")));
    const fs::path step = path("small.resume") + "/" + last + ".safetensors";
    ASSERT_TRUE(wait_until([&] { return fs::exists(step) || program.has_ended(); }));
    program.send(SIGKILL);
    EXPECT_EQ(program.wait().status, 128 + SIGKILL) << "it was too fast to be killed";
    EXPECT_FALSE(fs::exists(path("small")));
  }
  const ProgramResult result = run_hone(arguments("small"));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(read_text_file(path("small") + "/model.safetensors"),
            read_text_file(path("whole") + "/model.safetensors"));
  EXPECT_FALSE(fs::exists(path("small.resume")));
  EXPECT_EQ(read_text_file(path("big") + "/model.safetensors"), original);
}

}  // namespace
}  // namespace hone::test
