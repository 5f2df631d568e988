// SPDX-License-Identifier: Apache-2.0
#include "hone/app/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "hone/app/eval_lm.h"
#include "hone/app/inspect.h"
#include "hone/app/inspect_table.h"
#include "hone/core/bf16.h"
#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/safetensors.h"
#include "hone/infer/engine.h"
#include "tests/model_io/tiny_gguf.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

class Convert : public testing::Test {
 protected:
  Convert() {
    model_io::Architecture a = test::tiny_architecture();
    a.head_dim = a.rope.rotary_dims = 8;
    a.tied_embeddings = true;
    write_hugging_face(path("hf"), test::TinyModel(a).source());
  }
  fs::path path(const char* name) const { return folder_.path() / name; }
  Json convert(const char* in, const char* out, const std::string& dtype = "",
               const std::string& to = "") const {
    ConvertOptions options;
    options.in = path(in);
    options.out = path(out);
    options.dtype = dtype;
    options.to = to;
    return convert_model(options);
  }
  ErrorCategory refusal(const char* in, const char* out, const std::string& dtype = "",
                        const std::string& to = "") const {
    try {
      convert(in, out, dtype, to);
    } catch (const Error& error) {
      return error.category();
    }
    ADD_FAILURE() << "accepted " << in << " " << out;
    return ErrorCategory::Internal;
  }
  test::TemporaryFolder folder_;
};

TEST_F(Convert, the_name_of_the_output_decides_the_format) {
  EXPECT_EQ(convert("hf", "m.gguf")["out_format"], "gguf");
  EXPECT_EQ(convert("m.gguf", "m.bin")["out_format"], "llama2.c");
  EXPECT_EQ(convert("m.bin", "back")["out_format"], "huggingface");
  EXPECT_EQ(read_text_file(path("hf") / "model.safetensors"),
            read_text_file(path("back") / "model.safetensors"));
  EXPECT_EQ(convert("hf", "plain", "", "gguf")["out_format"], "gguf");
}

TEST_F(Convert, reports_tensors_bytes_and_what_was_kept) {
  const Json report = convert("hf", "q", "q4_0");
  EXPECT_EQ(report["out_format"], "hone");
  EXPECT_EQ(report["in_format"], "huggingface");
  EXPECT_EQ(report["tensors"], 2 * 9 + 2);
  Index bytes = 0;
  for (const auto& entry : fs::directory_iterator(path("q")))
    bytes += static_cast<Index>(entry.file_size());
  EXPECT_EQ(report["bytes"], bytes);
  ASSERT_EQ(report["kept"].size(), 2u);
  EXPECT_EQ(report["kept"][1]["name"], "model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ(report["kept"][1]["dtype"], "f16");
  EXPECT_NE(report["kept"][1]["reason"].get<std::string>().find("40"), std::string::npos);
  EXPECT_EQ(convert("q", "again", "", "hone")["out_format"], "hone");  // keeps its codes
  EXPECT_EQ(read_text_file(path("q") / "model.safetensors"),
            read_text_file(path("again") / "model.safetensors"));
  EXPECT_EQ(convert("q", "dense", "bf16")["out_format"], "huggingface");
}

// Whether transformers would find the weights of its class.
bool has_codes(const fs::path& folder) {
  const MmapFile file(folder / "model.safetensors");
  const SafetensorsFile content = parse_safetensors(file.bytes(), folder.string());
  return std::ranges::any_of(content.tensors, [](const SafetensorsTensor& tensor) {
    return tensor.dtype == Dtype::UInt8;
  });
}

TEST_F(Convert, a_folder_has_floats_unless_the_artifact_is_asked_for) {
  test::write_tiny_gguf(path("k.gguf"));
  convert("hf", "q8.gguf", "q8_0");
  convert("hf", "packed", "q4_0");
  for (const char* in : {"k.gguf", "q8.gguf", "packed"}) {
    const Json report = convert(in, "out");
    EXPECT_EQ(report["out_format"], "huggingface") << in;
    EXPECT_EQ(report["decoded"]["dtype"], "f16") << in;
    EXPECT_GT(report["decoded"]["matrices"], 8) << in;
    EXPECT_TRUE(report["kept"].empty()) << in;
    EXPECT_FALSE(has_codes(path("out"))) << in;
    const Json config = read_json_file(path("out") / "config.json");
    EXPECT_EQ(config["torch_dtype"], "float16") << in;
    EXPECT_EQ(config["architectures"], Json::array({"LlamaForCausalLM"})) << in;
    const auto before = test::open_bare(path(in)), after = test::open_bare(path("out"));
    for (const model_io::NamedMatrix& tensor : after->tensors()) {
      if (!tensor.name.ends_with("o_proj.weight") && !tensor.name.ends_with("v_proj.weight"))
        continue;
      std::vector<float> values = test::decoded(before->tensor(tensor.name));
      for (float& value : values) value = f16_to_float(float_to_f16(value));
      EXPECT_TRUE(test::same_bits(values, test::decoded(tensor))) << in << tensor.name;
    }
  }
  EXPECT_EQ(convert("k.gguf", "out", "f32")["decoded"]["dtype"], "f32");
  EXPECT_EQ(refusal("k.gguf", "out", "q8_0", "hf"), ErrorCategory::InvalidArgument);
}

TEST_F(Convert, a_folder_has_the_float_type_of_a_source_that_has_one) {
  test::write_tiny_gguf(path("mixed.gguf"), {GgufType::BF16, GgufType::Q8_0});
  EXPECT_EQ(convert("mixed.gguf", "out")["decoded"]["dtype"], "bf16");
  EXPECT_EQ(read_json_file(path("out") / "config.json")["torch_dtype"], "bfloat16");
}

TEST_F(Convert, an_artifact_keeps_blocks_that_no_other_folder_has) {
  test::write_tiny_gguf(path("k.gguf"));
  EXPECT_EQ(convert("k.gguf", "packed", "", "hone")["out_format"], "hone");
  const Json types = inspect_file({path("packed"), {}})["types"];
  for (const char* type : {"q4_k", "q5_k", "q6_k", "q5_0", "q5_1", "q4_1"})
    EXPECT_TRUE(types.contains(type)) << types.dump();
  const auto before = test::open_bare(path("k.gguf")), after = test::open_bare(path("packed"));
  convert("packed", "back.gguf");
  const auto back = test::open_bare(path("back.gguf"));
  for (const model_io::NamedMatrix& tensor : before->tensors()) {
    EXPECT_TRUE(test::same_bits(test::decoded(tensor), test::decoded(back->tensor(tensor.name))));
    EXPECT_EQ(after->tensor(tensor.name).matrix.stored_bytes(), tensor.matrix.stored_bytes());
  }
}

TEST_F(Convert, an_artifact_of_an_earlier_version_opens) {
  convert("hf", "q", "q8_0");
  const fs::path file = path("q") / "config.json";
  Json config = read_json_file(file);
  EXPECT_EQ(config["architectures"], Json::array({"HoneLlamaForCausalLM"}));
  EXPECT_EQ(config["model_type"], "hone_llama");
  const auto now = test::open_bare(path("q"));
  config["architectures"] = Json::array({"LlamaForCausalLM"});
  config["model_type"] = "llama";
  write_json_file(file, config);
  EXPECT_EQ(test::open_bare(path("q"))->format(), model_io::ModelFormat::HoneArtifact);
  config.erase("hone");
  config["model_type"] = "hone_llama";
  config["architectures"] = Json::array({"HoneLlamaForCausalLM"});
  write_json_file(file, config);
  EXPECT_EQ(refusal("q", "x"), ErrorCategory::Unsupported) << "the names of no folder but hone's";
}

TEST_F(Convert, transformers_opens_folders_and_refuses_artifacts) {
  HONE_REQUIRE_PEER("transformers", "torch");
  test::write_tiny_gguf(path("k.gguf"));
  convert("k.gguf", "out");
  convert("k.gguf", "packed", "q8_0");
  const auto ask = [&](const char* name) {
    return parse_json(
        test::run_peer("tests/model_io/peer_transformers.py", {"open", path(name).string()}), name);
  };
  const Json opened = ask("out");
  EXPECT_EQ(opened["dtype"], "torch.float16");
  EXPECT_TRUE(opened["missing"].empty()) << opened["missing"].dump();
  const auto file = test::open_bare(path("out"));
  for (const model_io::NamedMatrix& tensor : file->tensors()) {
    const std::vector<float> values = test::decoded(tensor);
    EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0),
                opened["tensors"][tensor.name][4].get<double>(), 1e-6)
        << tensor.name;
  }
  EXPECT_NE(ask("packed")["refused"].get<std::string>().find("hone_llama"), std::string::npos);
}

TEST_F(Convert, refuses_to_overwrite_the_input_or_foreign_folders) {
  EXPECT_EQ(refusal("hf", "hf"), ErrorCategory::InvalidArgument);
  fs::create_directory(path("photos"));
  write_text_file(path("photos") / "cat.txt", "cat");
  EXPECT_EQ(refusal("hf", "photos"), ErrorCategory::InvalidArgument);
  EXPECT_TRUE(fs::exists(path("photos") / "cat.txt"));
  convert("hf", "copy");
  convert("hf", "copy", "f16");  // a model may be replaced
  EXPECT_EQ(refusal("hf", "m.gguf", "q5_k"), ErrorCategory::InvalidArgument);
  EXPECT_EQ(refusal("hf", "m.bin", "f16"), ErrorCategory::InvalidArgument);
  EXPECT_EQ(refusal("hf", "x", "", "onnx"), ErrorCategory::InvalidArgument);
  EXPECT_EQ(refusal("none", "x"), ErrorCategory::NotFound);
  EXPECT_FALSE(fs::exists(path("m.gguf")) || fs::exists(path("m.bin")) || fs::exists(path("x")));
}

TEST_F(Convert, joins_a_split_gguf_and_spares_each_of_its_parts) {
  test::write_parts(path(""), test::tiny_split());
  const Json document = convert("m-00002-of-00003.gguf", "one.gguf");
  EXPECT_EQ(document["tensors"], 12);
  EXPECT_TRUE(document["kept"].empty());
  for (const char* part : {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const std::string before = read_text_file(path(part));
    EXPECT_EQ(refusal("m-00002-of-00003.gguf", part), ErrorCategory::InvalidArgument);
    EXPECT_EQ(read_text_file(path(part)), before);
  }
  const Json parts = inspect_file({path("m-00003-of-00003.gguf"), {}});
  const Json one = inspect_file({path("one.gguf"), {}});
  EXPECT_EQ(parts["parameters"], one["parameters"]);
  EXPECT_EQ(parts["tensors"].size(), 12u);
  EXPECT_EQ(one["tensors"][0]["dtype"], "q4_k");
}

TEST_F(Convert, writes_the_tokenizer_of_llama2c_beside_it) {
  HONE_REQUIRE_TEST_DATA(stories, "lm/stories260K.bin");
  ConvertOptions options;
  options.in = stories;
  options.out = path("m.bin");
  const Json report = convert_model(options);
  EXPECT_EQ(report["tokenizer_file"], path("tokenizer.bin").string());
  EXPECT_EQ(read_text_file(path("tokenizer.bin")),
            read_text_file(stories.parent_path() / "tok512.bin"));
}

Json inspect(const fs::path& file, bool stats = false) {
  InspectOptions options;
  options.file = file;
  options.stats = stats;
  return inspect_file(options);
}

TEST_F(Convert, inspect_says_what_is_in_every_format) {
  convert("hf", "m.gguf", "q8_0");
  convert("hf", "m.bin");
  convert("hf", "q", "q4_0");
  const Json hf = inspect(path("hf"));
  EXPECT_EQ(hf["kv_bytes_per_token"], 2 * 2 * 2 * 8 * 2);
  EXPECT_EQ(hf["tied"], true);
  EXPECT_EQ(hf["tokenizer"], nullptr);
  EXPECT_EQ(hf["rope"]["pairing"], "half-split");
  EXPECT_EQ(hf["tensors"][0]["dtype"], "f32");
  const Json gguf = inspect(path("m.gguf"));
  EXPECT_EQ(gguf["format"], "gguf");
  EXPECT_EQ(gguf["rope"]["pairing"], "adjacent");
  EXPECT_EQ(gguf["tensors"][0]["dtype"], "q8_0");
  EXPECT_EQ(gguf["parameters"], hf["parameters"]);
  EXPECT_EQ(inspect(path("q"))["tensors"][0]["dtype"], "int4:g32:sym");
  EXPECT_EQ(inspect(path("m.bin"))["format"], "llama2.c");
  const Json lone = inspect(path("hf") / "model.safetensors");
  EXPECT_EQ(lone["format"], "safetensors");
  EXPECT_EQ(lone["parameters"], hf["parameters"]);
  for (const Json& document : {hf, gguf, lone})
    EXPECT_NE(describe_inspection(document).find("tensors"), std::string::npos);
}

TEST_F(Convert, inspect_stats_reads_the_values) {
  model_io::Architecture a = test::tiny_architecture();
  std::vector<model_io::NamedMatrix> tensors;
  const test::TinyModel model(a);
  for (const auto& tensor : model.tensors()) tensors.push_back(tensor);
  std::vector<float> values = test::decoded(tensors[0]);
  values[3] = -7.5f;
  values[4] = 9.25f;
  values[5] = std::nanf("");
  tensors[0].matrix.bytes = std::as_bytes(std::span(values));
  model_io::write_hugging_face(path("stats"), {a, tensors, nullptr, Json::object()});
  const Json row = inspect(path("stats"), true)["tensors"][0];
  EXPECT_EQ(row["min"], -7.5);
  EXPECT_EQ(row["max"], 9.25);
  EXPECT_EQ(row["nan"], 1);
  EXPECT_FALSE(inspect(path("stats"))["tensors"][0].contains("min"));
}

// More values than are decoded at a time, and a rest.
TEST_F(Convert, inspect_stats_reads_all_values_of_a_safetensors_file) {
  std::vector<float> values(200'001, 0.5f);
  values[70'000] = -3;
  values[150'000] = std::numeric_limits<float>::infinity();
  values.back() = 4;
  const std::vector<SafetensorsWriter::Entry> plan{{"m", Dtype::Float32, {3, 66'667}}};
  SafetensorsWriter writer(path("lone.safetensors"), plan);
  writer.write(std::as_bytes(std::span(values)));
  writer.commit();
  const Json row = inspect(path("lone.safetensors"), true)["tensors"][0];
  EXPECT_EQ(row["min"], -3);
  EXPECT_EQ(row["max"], 4);
  EXPECT_EQ(row["inf"], 1);
  EXPECT_EQ(row["nan"], 0);
}

// 2 x 3 x 3 x 3 weights of a convolution and two of a normalization, whose buffers are none.
TEST(Inspect, lists_a_classifier_without_its_buffers) {
  const test::TemporaryFolder folder;
  write_json_file(folder.path() / "config.json", {{"format", "hone-vision"},
                                                  {"model", "resnet20"},
                                                  {"width", 2},
                                                  {"layers", 2},
                                                  {"channels", 3},
                                                  {"height", 32},
                                                  {"image_width", 32},
                                                  {"image_side", 40},
                                                  {"classes", {"cat", "dog", "newt"}}});
  const std::vector<SafetensorsWriter::Entry> plan{{"conv1.weight", Dtype::Float32, {2, 3, 3, 3}},
                                                   {"bn1.weight", Dtype::Float32, {2}},
                                                   {"bn1.running_mean", Dtype::Float32, {2}},
                                                   {"bn1.num_batches_tracked", Dtype::Int64, {}}};
  SafetensorsWriter writer(folder.path() / "model.safetensors", plan);
  const std::vector<std::byte> zeros(4 * (54 + 2 + 2) + 8);
  writer.write(zeros);
  writer.commit();
  const Json document = inspect(folder.path());
  EXPECT_EQ(document["format"], "hone-vision");
  EXPECT_EQ(document["parameters"], 56);
  EXPECT_EQ(document["tensors"].size(), 4u);
  EXPECT_EQ(document["classes"][2], "newt");
  EXPECT_EQ(document["architecture"]["family"], "resnet20");
  EXPECT_EQ(document["architecture"]["image_side"], 40);
  const std::string text = describe_inspection(document);
  for (const char* part : {"resnet20", "newt", "architecture.height", "parameters"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST(Inspect, shows_the_header_of_a_gguf_that_hone_does_not_serve) {
  HONE_REQUIRE_TEST_DATA(path, "tokenizers/ggml-vocab-gpt-2.gguf");
  const Json document = inspect(path);
  EXPECT_EQ(document["architecture"]["family"], "gpt2");
  EXPECT_TRUE(document.contains("not_served"));
}

TEST_F(Convert, gguf_and_llama2c_refuse_factored_layers_and_the_rest_takes_them) {
  model_io::Architecture a = test::tiny_architecture();
  a.factored.push_back({.name = "model.layers.1.mlp.down_proj", .rank = 6});
  write_hugging_face(path("thin"), test::TinyModel(a).source());
  const std::string wanted =
      "] Layer model.layers.1.mlp.down_proj is factored (low_rank, rank 6), and this needs "
      "dense layers; use the dense model that it was made from.";
  const auto said = [](const auto& act) { return test::refusal(act, ErrorCategory::Unsupported); };
  for (const std::string& message :
       {said([&] { convert("thin", "m.gguf"); }), said([&] { convert("thin", "m.bin"); })}) {
    EXPECT_TRUE(message.ends_with(wanted)) << message;
  }
  EXPECT_FALSE(fs::exists(path("m.gguf")));
  convert("thin", "copy");
  convert("thin", "q", "q8_0");
  infer::EngineOptions options;
  options.executor = &serial_executor();
  options.need_tokenizer = false;
  for (const char* name : {"thin", "copy", "q"}) {
    check_language_model(path(name), {});
    infer::Engine::open_or_throw(path(name), options);
    const Json document = inspect(path(name));
    EXPECT_EQ(document["architecture"]["factored_layers"],
              Json({{"model.layers.1.mlp.down_proj", {{"mode", "low_rank"}, {"rank", 6}}}}));
    EXPECT_EQ(document["parameters"], a.parameters());
  }
}

}  // namespace
}  // namespace hone::app
