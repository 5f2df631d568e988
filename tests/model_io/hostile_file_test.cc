// SPDX-License-Identifier: Apache-2.0
// Files that lie: each opens to one sentence of the right category, or does not open at all.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/gguf.h"
#include "hone/core/format/safetensors.h"
#include "hone/model_io/artifact_manifest.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;
using test::TinyModel;

// Opens without tokenizer and expects one line of error in this category.
// `text` is a part of the message.
void expect_error(const fs::path& path, ErrorCategory wanted, std::string_view what,
                  std::string_view text = "") {
  try {
    test::open_bare(path);
    ADD_FAILURE() << what << ": accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.category(), wanted) << what << ": " << message;
    EXPECT_NE(message.find(text), std::string::npos) << what << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 500u) << message;
  }
}

class HostileFile : public testing::Test {
 protected:
  HostileFile() : model_(test::tiny_architecture()) {
    write_hugging_face(folder_.path() / "hf", model_.source());
    hf_ = folder_.path() / "hf";
  }
  void edit_config(const std::function<void(Json&)>& edit) {
    Json config = read_json_file(hf_ / "config.json");
    edit(config);
    write_json_file(hf_ / "config.json", config);
  }
  // Rewrites model.safetensors with other tensors or names.
  void write_weights(const fs::path& path, const std::vector<SafetensorsWriter::Entry>& plan,
                     const SafetensorsMetadata& metadata = {}) {
    SafetensorsWriter writer(path, plan, metadata);
    for (const auto& entry : plan)
      writer.write(std::vector<std::byte>(
          static_cast<std::size_t>(entry.shape.elements() * bytes_of(entry.dtype))));
    writer.commit();
  }
  std::vector<SafetensorsWriter::Entry> true_plan() const {
    std::vector<SafetensorsWriter::Entry> plan;
    for (const NamedMatrix& tensor : model_.tensors())
      plan.push_back({tensor.name, Dtype::Float32,
                      tensor.is_vector ? Shape{tensor.matrix.cols}
                                       : Shape{tensor.matrix.rows, tensor.matrix.cols}});
    return plan;
  }

  test::TemporaryFolder folder_;
  TinyModel model_;
  fs::path hf_;
};

TEST_F(HostileFile, absent_or_unknown_files) {
  expect_error(folder_.path() / "none", ErrorCategory::NotFound, "nothing there");
  fs::create_directory(folder_.path() / "empty");
  expect_error(folder_.path() / "empty", ErrorCategory::NotFound, "folder without config.json");
  write_text_file(folder_.path() / "x.pt", "hello");
  expect_error(folder_.path() / "x.pt", ErrorCategory::Unsupported, "unknown extension");
  write_text_file(folder_.path() / "x.gguf", "");
  expect_error(folder_.path() / "x.gguf", ErrorCategory::CorruptFile, "empty gguf");
  fs::remove(hf_ / "model.safetensors");
  expect_error(hf_, ErrorCategory::NotFound, "no weights");
  write_text_file(hf_ / "pytorch_model.bin", "");
  expect_error(hf_, ErrorCategory::Unsupported, "pickle");
}

TEST_F(HostileFile, config_json_that_lies) {
  const std::vector<std::pair<const char*, Json>> lies{
      {"num_attention_heads", 0},
      {"num_key_value_heads", 3},
      {"rope_theta", 0},
      {"vocab_size", -2147483648LL},
      {"vocab_size", 9223372036854775807LL},
      {"hidden_size", 18446744073709551615ULL},
      {"num_hidden_layers", 1000000000},
      {"intermediate_size", 4611686018427387904LL},
      {"max_position_embeddings", 0},
      {"rms_norm_eps", 0},
      {"head_dim", 7},
      {"num_hidden_layers", 3},  // tensors of a third layer are missing
      {"num_hidden_layers", 1},  // tensors of a second layer are unknown
      {"attention_bias", true},
      {"hidden_size", 33}};
  const std::string original = read_text_file(hf_ / "config.json");
  for (const auto& [key, value] : lies) {
    write_text_file(hf_ / "config.json", original);
    edit_config([&, k = key, v = value](Json& config) { config[k] = v; });
    expect_error(hf_, ErrorCategory::CorruptFile, concat(key, " = ", value.dump()));
  }
  for (const char* text : {"", "{", "[]", "nul", "{\"a\":1,\"a\":2}", "{\"rope_theta\":1e999}"}) {
    write_text_file(hf_ / "config.json", text);
    try {
      test::open_bare(hf_);
      ADD_FAILURE() << "accepted " << text;
    } catch (const Error& error) {
      EXPECT_EQ(exit_status(error.category()) == 3 || exit_status(error.category()) == 4, true);
    }
  }
  write_text_file(hf_ / "config.json", std::string(100'000, '['));
  expect_error(hf_, ErrorCategory::CorruptFile, "nesting of 10^5");
}

TEST_F(HostileFile, weights_that_do_not_fit_the_architecture) {
  const fs::path weights = hf_ / "model.safetensors";
  auto plan = true_plan();
  plan.pop_back();
  write_weights(weights, plan);
  expect_error(hf_, ErrorCategory::CorruptFile, "lm_head missing");
  plan = true_plan();
  plan.push_back({"model.layers.0.self_attn.q_norm.weight", Dtype::Float32, {16}});
  write_weights(weights, plan);
  expect_error(hf_, ErrorCategory::CorruptFile, "unknown tensor");
  plan = true_plan();
  plan[0].shape = {32, 48};
  write_weights(weights, plan);
  expect_error(hf_, ErrorCategory::CorruptFile, "transposed");
  plan = true_plan();
  plan[1].shape = {1, 32};  // a vector stored as a matrix
  write_weights(weights, plan);
  expect_error(hf_, ErrorCategory::CorruptFile, "rank");
  plan = true_plan();
  plan[0].shape = {48, 32, 1};
  write_weights(weights, plan);
  expect_error(hf_, ErrorCategory::CorruptFile, "rank 3");
  plan = true_plan();
  plan[0].dtype = Dtype::Int32;
  write_weights(weights, plan);
  expect_error(hf_, ErrorCategory::Unsupported, "integer weights");
  fs::resize_file(weights, fs::file_size(weights) - 1);
  expect_error(hf_, ErrorCategory::CorruptFile, "cut short");
}

TEST_F(HostileFile, buffers_of_old_checkpoints_are_ignored_and_float8_is_widened) {
  auto plan = true_plan();
  plan.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", Dtype::Float32, {8}});
  plan[0].dtype = Dtype::Float8E4M3;
  write_weights(hf_ / "model.safetensors", plan);
  const auto model = test::open_bare(hf_);
  EXPECT_EQ(model->tensors().size(), true_plan().size());
  EXPECT_EQ(model->tensors()[0].matrix.dtype, Dtype::BFloat16);
}

TEST_F(HostileFile, shard_indices_that_lie) {
  const auto plan = true_plan();
  const std::size_t half = plan.size() / 2;
  const std::vector<SafetensorsWriter::Entry> first(plan.begin(), plan.begin() + half),
      second(plan.begin() + half, plan.end());
  fs::remove(hf_ / "model.safetensors");
  write_weights(hf_ / "a.safetensors", first);
  write_weights(hf_ / "b.safetensors", second);
  Json index;
  for (std::size_t i = 0; i < plan.size(); ++i)
    index["weight_map"][plan[i].name] = i < half ? "a.safetensors" : "b.safetensors";
  const fs::path path = hf_ / "model.safetensors.index.json";
  const auto expect = [&](const Json& json, ErrorCategory category, std::string_view what) {
    write_json_file(path, json);
    expect_error(hf_, category, what);
  };
  write_json_file(path, index);
  EXPECT_EQ(test::open_bare(hf_)->tensors().size(), plan.size());
  for (const char* name : {"../a.safetensors", "/etc/passwd", "..", ".", "", "x\\a", "s/a"}) {
    Json escape = index;
    escape["weight_map"][plan[0].name] = name;
    expect(escape, ErrorCategory::CorruptFile, name);
  }
  Json other = index;
  other["weight_map"][plan[0].name] = "b.safetensors";
  expect(other, ErrorCategory::CorruptFile, "tensor in another shard");
  other = index;
  other["weight_map"].erase(plan[0].name);
  expect(other, ErrorCategory::CorruptFile, "tensor that the index omits");
  other = index;
  other["weight_map"]["more"] = "b.safetensors";
  expect(other, ErrorCategory::CorruptFile, "tensor that no shard has");
  other = index;
  other["weight_map"]["more"] = "c.safetensors";
  expect(other, ErrorCategory::NotFound, "shard that does not exist");
  other = index;
  other["weight_map"][plan[0].name] = 1;
  expect(other, ErrorCategory::CorruptFile, "number for a shard");
  expect(Json{{"weight_map", Json::array()}}, ErrorCategory::CorruptFile, "no map");
}

TEST_F(HostileFile, masks_that_lie) {
  const fs::path path = folder_.path() / "q";
  std::vector<NamedMatrix> tensors(model_.tensors().begin(), model_.tensors().end());
  const std::vector<float> zeros(
      static_cast<std::size_t>(tensors[0].matrix.rows * tensors[0].matrix.cols));
  const std::string name = tensors[0].name;
  tensors[0].matrix.bytes = std::as_bytes(std::span(zeros));
  write_artifact(path, {.architecture = model_.architecture(), .tensors = tensors});
  const fs::path weights = path / "model.safetensors";
  const MmapFile bytes(weights);
  const SafetensorsFile good = parse_safetensors(bytes.bytes(), "x");
  const Json manifest = parse_json(*good.find_metadata("hone.tensors"), "x");
  ASSERT_EQ(manifest[name]["sparse"], "bitmask");
  std::vector<SafetensorsWriter::Entry> plan;
  for (const auto& tensor : good.tensors) plan.push_back({tensor.name, tensor.dtype, tensor.shape});
  const auto expect = [&](const char* key, const Json& value) {
    Json said = manifest;
    said[name][key] = value;
    write_weights(weights, plan, {{"hone.format", "1"}, {"hone.tensors", said.dump()}});
    expect_error(path, ErrorCategory::CorruptFile, key);
  };
  EXPECT_EQ(test::decoded(test::open_bare(path)->tensor(name)), zeros);
  expect("mask", 7);
  expect("codes", -1);
  expect("codes", 4);
  expect("codes", 9223372036854775807LL);
  expect("sparse", "none");
  expect("spec", "q4_0");
  expect("rows", 9223372036854775807LL);
  expect("cols", Index{1} << 62);
  expect("spec", "int8:g65536:sym");
}

TEST_F(HostileFile, artifacts_that_lie) {
  const fs::path path = folder_.path() / "q";
  write_artifact(path, model_.source(), StoreType::Q4_0);
  const fs::path weights = path / "model.safetensors";
  const MmapFile bytes(weights);
  const SafetensorsFile good = parse_safetensors(bytes.bytes(), "x");
  std::vector<SafetensorsWriter::Entry> plan;
  for (const auto& tensor : good.tensors) plan.push_back({tensor.name, tensor.dtype, tensor.shape});
  const Json manifest = parse_json(*good.find_metadata("hone.tensors"), "x");
  const std::string name = "lm_head.weight";
  const auto expect = [&](const Json& said, std::string_view version, ErrorCategory category,
                          std::string_view what) {
    write_weights(weights, plan,
                  {{"hone.format", std::string(version)}, {"hone.tensors", said.dump()}});
    expect_error(path, category, what);
  };
  const auto with = [&](const char* key, const Json& value) {
    Json said = manifest;
    said[name][key] = value;
    return said;
  };
  write_weights(weights, plan, {{"hone.format", "1"}, {"hone.tensors", manifest.dump()}});
  EXPECT_NO_THROW(test::open_bare(path)) << "without a lie";
  expect(manifest, "2", ErrorCategory::CorruptFile, "format version");
  for (const char* key : {"codes", "scales", "zeros"})
    expect(with(key, 7), "1", ErrorCategory::CorruptFile, key);
  expect(with("rows", 49), "1", ErrorCategory::CorruptFile, "rows");
  expect(with("rows", -1), "1", ErrorCategory::CorruptFile, "negative rows");
  expect(with("cols", 9223372036854775807LL), "1", ErrorCategory::CorruptFile, "huge cols");
  expect(with("spec", "int9:row"), "1", ErrorCategory::CorruptFile, "9 bits");
  expect(with("spec", "float"), "1", ErrorCategory::CorruptFile, "no quantization");
  expect(with("spec", "int4:g9223372036854775792:sym"), "1", ErrorCategory::CorruptFile, "group");
  expect(with("act", "fp8"), "1", ErrorCategory::CorruptFile, "activation");
  expect(with("sparse", "csr"), "1", ErrorCategory::Unsupported, "sparse");
  Json said = manifest;
  said.erase(name);
  expect(said, "1", ErrorCategory::CorruptFile, "blobs without entry");
  said = manifest;
  said["other.weight"] = said[name];
  expect(said, "1", ErrorCategory::CorruptFile, "entry without blobs");
  expect(Json::array(), "1", ErrorCategory::CorruptFile, "no object");
  write_weights(weights, plan, {{"hone.format", "1"}});
  expect_error(path, ErrorCategory::CorruptFile, "no manifest");
}

TEST_F(HostileFile, gguf_models_that_lie) {
  const fs::path path = folder_.path() / "m.gguf";
  const auto write = [&](const std::function<void(GgufWriter&)>& keys, std::string_view arch,
                         GgufType type, std::string_view tensor) {
    GgufWriter writer(path);
    writer.set_string("general.architecture", arch);
    keys(writer);
    const std::vector<Index> dims{256, 48};
    writer.add_tensor(tensor, type, dims);
    const GgufTypeInfo& info = gguf_type_info(static_cast<std::uint32_t>(type), tensor);
    writer.write(
        std::vector<std::byte>(static_cast<std::size_t>(256 / info.block * info.bytes * 48)));
    writer.commit();
  };
  const auto keys = [](GgufWriter& writer) {
    for (const char* key : {"context_length", "block_count", "attention.head_count"})
      writer.set_integer(concat("llama.", key), 8);
    writer.set_integer("llama.embedding_length", 256);
    writer.set_integer("llama.feed_forward_length", 40);
    writer.set_number("llama.attention.layer_norm_rms_epsilon", 1e-5);
  };
  write(keys, "llama", GgufType::F32, "token_embd.weight");
  expect_error(path, ErrorCategory::CorruptFile, "layers missing");
  write(keys, "bert", GgufType::F32, "token_embd.weight");
  expect_error(path, ErrorCategory::Unsupported, "architecture");
  write(keys, "llama", GgufType::Q6_K, "token_embd.weight");
  expect_error(path, ErrorCategory::CorruptFile, "layers missing, Q6_K");
  write(keys, "llama", GgufType::Q4_K, "output_norm.weight");
  expect_error(path, ErrorCategory::CorruptFile, "no embedding, Q4_K");
  write(keys, "llama", GgufType::F32, "mystery.weight");
  expect_error(path, ErrorCategory::CorruptFile, "no embedding");
  write([](GgufWriter&) {}, "llama", GgufType::F32, "token_embd.weight");
  expect_error(path, ErrorCategory::CorruptFile, "no keys");
  const auto and_key = [&](const char* key, double value) {
    return [=](GgufWriter& writer) {
      keys(writer);
      writer.set_number(key, value);
    };
  };
  for (const double base : {0.0, std::numeric_limits<double>::quiet_NaN(), -1.0}) {
    write(and_key("llama.rope.freq_base", base), "llama", GgufType::F32, "token_embd.weight");
    expect_error(path, ErrorCategory::CorruptFile, concat("rope base ", base),
                 "a rope base above 0");
  }
  write(and_key("llama.rope.dimension_count", 8), "llama", GgufType::F32, "token_embd.weight");
  expect_error(path, ErrorCategory::CorruptFile, "float for a count", "llama.rope.dimension_count");
}

TEST_F(HostileFile, llama2c_files_that_lie) {
  Architecture a = test::tiny_architecture();
  a.head_dim = a.rope.rotary_dims = 8;
  const fs::path path = folder_.path() / "m.bin";
  const TinyModel model(a);
  write_llama2c(path, model.source());
  const std::string good = read_text_file(path);
  const auto expect = [&](const std::string& bytes, ErrorCategory category, std::string_view what) {
    write_text_file(path, bytes);
    expect_error(path, category, what);
  };
  expect(good + "x", ErrorCategory::CorruptFile, "trailing byte");
  expect(good.substr(0, good.size() - 1), ErrorCategory::CorruptFile, "cut short");
  expect(good.substr(0, 27), ErrorCategory::CorruptFile, "header cut short");
  expect("", ErrorCategory::CorruptFile, "empty");
  const auto set = [&](std::size_t field, std::int32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + 4 * field, &value, sizeof value);
    return bytes;
  };
  for (std::size_t field = 0; field < 7; ++field) {
    for (const std::int32_t value : {0, -1, std::numeric_limits<std::int32_t>::min(),
                                     std::numeric_limits<std::int32_t>::max()})
      expect(set(field, value), ErrorCategory::CorruptFile, concat("field ", field, " = ", value));
  }
  std::string magic = set(0, 0x616b3432);
  magic.resize(512);
  expect(magic, ErrorCategory::Unsupported, "version");
}

}  // namespace
}  // namespace hone::model_io
