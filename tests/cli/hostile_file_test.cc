// SPDX-License-Identifier: Apache-2.0
// Files that lie, through the program: one sentence, exit 3 (4 for what hone does not serve).
#include <functional>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class Hostile : public Cli {
 protected:
  Hostile() : hf_(write_tiny_model()) {}
  static void expect_refused(const std::string& model, const std::string& what, int status = 3) {
    SCOPED_TRACE(what);
    expect_refusal({"inspect", model}, status, "[" + model);
    expect_refusal({"generate", model, "-p", "a", "-n", "2"}, status, "[" + model);
  }
  std::string hf_;
};

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("no " + from);
  return text.replace(at, from.size(), to);
}

TEST_F(Hostile, safetensors) {
  const std::string file = hf_ + "/model.safetensors", good = read_text_file(file);
  std::uint64_t length = 0;
  std::memcpy(&length, good.data(), sizeof length);
  const std::string text = good.substr(8, length), data = good.substr(8 + length);
  const Json header = parse_json(text, "header");
  const std::string norm = "model.layers.0.input_layernorm.weight",
                    other = "model.layers.1.input_layernorm.weight";
  const auto with_header = [&](const std::string& json, const std::string& tail = "") {
    return raw<std::uint64_t>(json.size()) + json + data + tail;
  };
  const auto edited = [&](const std::string& tensor, const char* key, const Json& value) {
    Json lie = header;
    lie[tensor][key] = value;
    return with_header(lie.dump());
  };
  Json hole = header;
  hole.erase(norm);
  std::string crowd = "{";
  for (int i = 0; i < 1'000'000; ++i)
    crowd += concat("\"", i, "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},");
  const std::string first = "\"" + norm + "\":" + header[norm].dump();
  const std::vector<std::pair<std::string, std::string>> lies{
      {"empty", ""},
      {"seven bytes", good.substr(0, 7)},
      {"header of 2^63", raw(std::uint64_t{1} << 63) + good.substr(8)},
      {"header of 2^64 - 1", raw(~std::uint64_t{0}) + good.substr(8)},
      {"header past the end", raw<std::uint64_t>(good.size()) + good.substr(8)},
      {"cut short", good.substr(0, good.size() - 1)},
      {"trailing byte", good + "x"},
      {"overlap", edited(norm, "data_offsets", header[other]["data_offsets"])},
      {"hole", with_header(hole.dump())},
      {"duplicate key", with_header("{" + first + "," + header.dump().substr(1))},
      {"product overflow", edited(norm, "shape", {Index{1} << 62, 8})},
      {"negative dimension", edited(norm, "shape", {-32})},
      {"offset past the end", edited(norm, "data_offsets", {0, Index{1} << 40})},
      {"offset of 2^63", edited(norm, "data_offsets", {0, std::uint64_t{1} << 63})},
      {"offsets reversed", edited(norm, "data_offsets", {128, 0})},
      {"offset of kind float", edited(norm, "data_offsets", {0.5, 128.5})},
      {"unknown entry", edited(norm, "dtype", 7)},
      {"list for header", with_header("[]")},
      {"deep header", with_header(std::string(100'000, '['))},
      {"10^6 keys", with_header(crowd + header.dump().substr(1))}};
  for (const auto& [what, bytes] : lies) {
    write_text_file(file, bytes);
    expect_refused(hf_, what);
  }
  write_text_file(file, edited(norm, "dtype", "I32"));
  expect_refused(hf_, "integer weights", 4);
  write_text_file(file, good);
  EXPECT_EQ(run_hone({"generate", hf_, "-p", "a", "-n", "2"}).status, 0);
}

TEST_F(Hostile, config) {
  const std::string file = hf_ + "/config.json", good = read_text_file(file);
  const std::vector<std::pair<const char*, Json>> lies{
      {"num_attention_heads", 0},     {"num_attention_heads", -4},
      {"num_key_value_heads", 3},     {"rope_theta", 0},
      {"rope_theta", "NaN"},          {"vocab_size", -2147483648LL},
      {"vocab_size", "48"},           {"hidden_size", 18446744073709551615ULL},
      {"num_hidden_layers", 1000000}, {"max_position_embeddings", 0},
      {"rms_norm_eps", -1},           {"intermediate_size", Index{1} << 62}};
  for (const auto& [key, value] : lies) {
    Json config = parse_json(good, "config");
    config[key] = value;
    write_json_file(file, config);
    expect_refused(hf_, concat(key, " = ", value.dump()));
  }
  for (const char* text : {"", "{", "[]", "{\"a\":1,\"a\":2}", "{\"rope_theta\":NaN}"}) {
    write_text_file(file, text);
    expect_refused(hf_, text);
  }
  Json config = parse_json(good, "config");
  config["model_type"] = "bert";
  config["architectures"] = {"BertModel"};
  write_json_file(file, config);
  expect_refused(hf_, "architecture", 4);
  write_text_file(file, good);
  fs::rename(hf_ + "/model.safetensors", hf_ + "/pytorch_model.bin");
  expect_refused(hf_, "pickle", 4);
}

TEST_F(Hostile, shards) {
  const std::string file = hf_ + "/model.safetensors";
  fs::rename(file, path("a.safetensors"));  // beside the folder, readable
  fs::copy_file(path("a.safetensors"), hf_ + "/a.safetensors");
  const std::string text = read_text_file(hf_ + "/a.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  const Json header = parse_json(text.substr(8, length), "header");
  Json index;
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__") index["weight_map"][name] = "a.safetensors";
  write_json_file(file + ".index.json", index);
  ASSERT_EQ(run_hone({"inspect", hf_}).status, 0);
  for (const std::string& shard : {std::string("../a.safetensors"), path("a.safetensors"),
                                   std::string(".."), std::string("absent.safetensors")}) {
    Json escape = index;
    for (Json& entry : escape["weight_map"]) entry = shard;
    write_json_file(file + ".index.json", escape);
    expect_refused(hf_, shard);
  }
}

TEST_F(Hostile, gguf) {
  const std::string file = path("m.gguf");
  ASSERT_EQ(run_hone({"convert", hf_, file}).status, 0);
  const std::string good = read_text_file(file);
  const auto with = [&](std::size_t at, const std::string& bytes) {
    return std::string(good).replace(at, bytes.size(), bytes);
  };
  const auto after = [&](const std::string& name, std::size_t skip) {  // position behind a name
    const std::size_t at = good.find(name);
    if (at == std::string::npos) throw std::runtime_error("no " + name);
    return at + name.size() + skip;
  };
  const std::size_t rope = after("llama.rope.freq_base", 4),
                    heads = after("llama.attention.head_count", 4),
                    norm = after("blk.0.attn_norm.weight", 4), type = norm + 8, offset = type + 4;
  const std::uint64_t huge = std::uint64_t{1} << 63;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Lie {
    const char* what;
    std::string bytes;
    int status = 3;
  };
  const std::vector<Lie> lies{
      {"empty", ""},
      {"magic", with(0, "GGML")},
      {"version", with(4, raw<std::uint32_t>(99)), 4},
      {"2^63 tensors", with(8, raw(huge))},
      {"10^6 tensors", with(8, raw<std::uint64_t>(1'000'000))},
      {"2^63 keys", with(16, raw(huge))},
      {"10^6 keys", with(16, raw<std::uint64_t>(1'000'000))},
      {"key of 2^63 bytes", with(24, raw(huge))},
      {"no heads", with(heads, raw<std::uint32_t>(0))},
      {"2^32 - 1 heads", with(heads, raw<std::uint32_t>(~0u))},
      {"rope base 0", with(rope, raw(0.0f))},
      {"rope base NaN", with(rope, raw(nan))},
      {"dimension of 2^63", with(norm, raw(huge))},
      {"dimension 0", with(norm, raw<std::uint64_t>(0))},
      {"type", with(type, raw<std::uint32_t>(14))},
      {"offset past the end", with(offset, raw<std::uint64_t>(1 << 30))},
      {"offset of 2^63", with(offset, raw(huge))},
      {"overlap", with(offset, raw<std::uint64_t>(0))},
      {"duplicate tensor", replaced(good, "blk.0.attn_k.weight", "blk.0.attn_q.weight")},
      {"duplicate key",
       replaced(good, "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id")},
      {"cut short", good.substr(0, good.size() - 33)},
      {"half", good.substr(0, good.size() / 2)}};
  for (const Lie& lie : lies) {
    write_text_file(file, lie.bytes);
    expect_refused(file, lie.what, lie.status);
  }
  std::string other = good;
  const std::size_t name = after("general.architecture", 12);
  other.replace(name, 5, "gptjx");
  write_text_file(file, other);
  expect_refusal({"generate", file, "-p", "a"}, 4, "architecture");
}

TEST_F(Hostile, llama2c) {
  model_io::Architecture a = tiny_architecture();
  a.head_dim = a.rope.rotary_dims = 8;
  const std::string file = path("m.bin");
  write_llama2c(file, TinyModel(a).source());
  const std::string good = read_text_file(file);
  const auto with = [&](std::size_t field, std::int32_t value) {
    return std::string(good).replace(4 * field, 4, raw(value));
  };
  std::vector<std::pair<std::string, std::string>> lies{{"empty", ""},
                                                        {"half a header", good.substr(0, 14)},
                                                        {"cut short", good.substr(0, 999)},
                                                        {"trailing byte", good + "x"}};
  const std::vector<std::pair<std::size_t, std::int32_t>> fields{
      {0, 0}, {1, -1}, {2, 1 << 30}, {3, 0}, {4, 3}, {5, std::numeric_limits<std::int32_t>::min()},
      {6, 0}};
  for (const auto& [field, value] : fields)
    lies.emplace_back(concat("field ", field, " = ", value), with(field, value));
  for (const auto& [what, bytes] : lies) {
    write_text_file(file, bytes);
    expect_refused(file, what);
  }
}

}  // namespace
}  // namespace hone::test
