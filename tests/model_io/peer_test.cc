// SPDX-License-Identifier: Apache-2.0
// Other people's programs read what hone writes, and hone reads what they write.
#include <gtest/gtest.h>

#include <cstring>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/gguf.h"
#include "hone/model_io/family/file_tensors.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;
using test::decoded;
using test::run_peer;
using test::TinyModel;

double sum_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum;
}

// Every tensor of `file` against rows [rows, cols, first, last, sum].
void expect_tensors(const ModelFile& file, const Json& expected) {
  EXPECT_EQ(file.tensors().size(), expected.size());
  for (const NamedMatrix& tensor : file.tensors()) {
    ASSERT_TRUE(expected.contains(tensor.name)) << tensor.name;
    const Json& row = expected[tensor.name];
    const std::vector<float> values = decoded(tensor);
    EXPECT_EQ(tensor.matrix.rows, row[0].get<Index>()) << tensor.name;
    EXPECT_EQ(tensor.matrix.cols, row[1].get<Index>()) << tensor.name;
    EXPECT_EQ(values.front(), row[2].get<float>()) << tensor.name;
    EXPECT_EQ(values.back(), row[3].get<float>()) << tensor.name;
    EXPECT_NEAR(sum_of(values), row[4].get<double>(), 1e-9 * static_cast<double>(values.size()));
  }
}

void expect_frequencies(const RopeSpec& rope, const Json& expected) {
  const std::vector<double> inverse = rope_frequencies(rope).inverse;
  ASSERT_EQ(inverse.size(), expected.size());
  for (std::size_t i = 0; i < inverse.size(); ++i)  // theirs are computed in f32
    EXPECT_NEAR(inverse[i], expected[i].get<double>(), 1e-5 * inverse[i]) << i;
}

TEST(Peer, models_saved_by_transformers_open_with_the_same_weights_and_rotation) {
  HONE_REQUIRE_PEER("transformers", "torch");
  const test::TemporaryFolder folder;
  run_peer("tests/model_io/peer_transformers.py", {"save", folder.path().string()});
  for (int i = 0; i < 8; ++i) {
    const fs::path path = folder.path() / concat("m", i);
    SCOPED_TRACE(path.string());
    const auto file = test::open_bare(path);
    const Json expected = read_json_file(path / "expected.json");
    expect_tensors(*file, expected["tensors"]);
    expect_frequencies(file->architecture().rope, expected["inverse"]);
    EXPECT_NEAR(rope_frequencies(file->architecture().rope).attention_factor,
                expected["attention_factor"].get<double>(), 1e-6);
    EXPECT_EQ(file->architecture().stop_ids, (std::vector<text::TokenId>{2, 3}));
    EXPECT_EQ(fs::exists(path / "model.safetensors.index.json"), i == 3);
  }
}

TEST(Peer, transformers_opens_what_hone_writes) {
  HONE_REQUIRE_PEER("transformers", "torch");
  const test::TemporaryFolder folder;
  Architecture a = test::tiny_architecture();
  a.attention_bias = a.mlp_bias = true;
  a.rope.scaling = RopeScaling::Llama3;
  a.rope.factor = 8;
  a.rope.original_context = 16;
  const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(a.vocab_size));
  const TinyModel model(a);
  const fs::path path = folder.path() / "hf";
  write_hugging_face(path, model.source(tokenizer.get()));
  const std::vector<std::string> texts{"a bad cab", "  two  spaces", "", "fgh"};
  std::string lines;
  for (const std::string& text : texts) lines += (lines.empty() ? "" : "\n") + text;
  write_text_file(path / "texts.txt", lines);
  const Json document = parse_json(
      run_peer("tests/model_io/peer_transformers.py", {"open", path.string()}), "transformers");
  const auto file = open_model_or_throw(path);
  expect_tensors(*file, document["tensors"]);
  expect_frequencies(a.rope, document["inverse"]);
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(document["ids"][i], Json(file->tokenizer()->encode(texts[i]))) << texts[i];
}

TEST(Peer, gguf_package_reads_what_hone_writes) {
  HONE_REQUIRE_PEER("gguf");
  const test::TemporaryFolder folder;
  const Architecture a = test::tiny_architecture();
  const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(a.vocab_size));
  const TinyModel model(a);
  for (const char* type : {"f32", "f16", "bf16", "q8_0", "q4_0"}) {
    const fs::path path = folder.path() / concat(type, ".gguf");
    write_gguf(path, model.source(tokenizer.get()), parse_store_type(type));
    const Json document =
        parse_json(run_peer("tests/model_io/peer_gguf.py", {"read", path.string()}), "gguf");
    EXPECT_EQ(document["keys"]["llama.attention.head_count_kv"], a.kv_heads);
    EXPECT_EQ(document["keys"]["tokenizer.ggml.tokens"], a.vocab_size);
    EXPECT_EQ(document["keys"]["tokenizer.ggml.model"], "llama");
    const MmapFile bytes(path);
    const GgufFile parsed = parse_gguf(bytes.bytes(), "x");
    EXPECT_EQ(document["tensors"].size(), parsed.tensors().size());
    const auto file = open_model_or_throw(path);
    const Json& row = document["tensors"]["token_embd.weight"];
    EXPECT_EQ(row[1], a.vocab_size);
    EXPECT_EQ(row[2], a.hidden_size);
    EXPECT_NEAR(row[3].get<double>(), sum_of(decoded(file->tensor("model.embed_tokens.weight"))),
                1e-9);
  }
}

TEST(Peer, tensors_written_by_the_gguf_package_decode_bit_equal) {
  HONE_REQUIRE_PEER("gguf");
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "m.gguf").string();
  run_peer("tests/model_io/peer_gguf.py", {"write", path});
  const Json expected = read_json_file(path + ".json");
  const MmapFile bytes(path);
  const GgufFile file = parse_gguf(bytes.bytes(), path);
  ASSERT_EQ(file.tensors().size(), expected.size());
  for (const GgufTensor& tensor : file.tensors()) {
    StoredMatrix matrix;
    matrix.rows = tensor.dims[1];
    matrix.cols = tensor.dims[0];
    matrix.bytes = tensor.bytes;
    const auto type = static_cast<GgufType>(tensor.type);
    if (type == GgufType::F16) matrix.dtype = Dtype::Float16;
    if (type == GgufType::BF16) matrix.dtype = Dtype::BFloat16;
    if (type == GgufType::Q8_0 || type == GgufType::Q4_0) {
      matrix.layout = WeightLayout::GgufBlocks;
      matrix.block_type = type;
    }
    std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
    decode(matrix, values);
    const Json& wanted = expected[std::string(tensor.name)];
    for (std::size_t i = 0; i < wanted["first"].size(); ++i)
      EXPECT_EQ(values[i], wanted["first"][i].get<float>()) << tensor.name << " " << i;
    EXPECT_NEAR(sum_of(values), wanted["sum"].get<double>(), 1e-9) << tensor.name;
  }
}

StoredMatrix blocks_of(const GgufTensor& tensor) {
  StoredMatrix matrix;
  matrix.layout = WeightLayout::GgufBlocks;
  matrix.block_type = static_cast<GgufType>(tensor.type);
  matrix.rows = tensor.dims[1];
  matrix.cols = tensor.dims[0];
  matrix.bytes = tensor.bytes;
  return matrix;
}

TEST(Peer, random_blocks_with_extreme_scales_decode_to_the_bits_of_the_gguf_package) {
  HONE_REQUIRE_PEER("gguf");
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "m.gguf").string();
  run_peer("tests/model_io/peer_gguf.py", {"random", path});
  const MmapFile bytes(path), expected(path + ".f32");
  const GgufFile file = parse_gguf(bytes.bytes(), path);
  ASSERT_EQ(file.tensors().size(), 10u);
  const std::byte* wanted = expected.bytes().data();
  for (const GgufTensor& tensor : file.tensors()) {
    const StoredMatrix matrix = blocks_of(tensor);
    EXPECT_EQ(gguf_type_info(tensor.type, "x").name, tensor.name);
    std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
    decode(matrix, values);
    EXPECT_EQ(std::memcmp(values.data(), wanted, values.size() * sizeof(float)), 0) << tensor.name;
    wanted += values.size() * sizeof(float);
  }
  EXPECT_EQ(wanted, expected.bytes().data() + expected.bytes().size());
}

TEST(Peer, any_part_of_a_model_that_the_gguf_package_split_opens_it) {
  HONE_REQUIRE_PEER("gguf");
  const test::TemporaryFolder folder;
  run_peer("tests/model_io/peer_gguf.py", {"split", folder.path().string()});
  const Json expected = read_json_file(folder.path() / "expected.json");
  for (const int part : {1, 2, 4}) {
    const fs::path path = folder.path() / concat("m-0000", part, "-of-00004.gguf");
    const auto file = test::open_bare(path);
    EXPECT_EQ(file->tensors().size(), expected.size());
    EXPECT_EQ(file->files().size(), 4u);
    for (const FileTensor& tensor : file_tensors(file->architecture(), FileFormat::Gguf)) {
      EXPECT_NEAR(sum_of(decoded(file->tensor(tensor.parts.front().name))),
                  expected.at(tensor.name).get<double>(), 1e-6)
          << tensor.name;
    }
  }
}

TEST(Peer, llama_cpp_continues_stories_from_hones_gguf) {
  HONE_REQUIRE_PEER("llama_cpp");
  HONE_REQUIRE_TEST_DATA(stories, "lm/stories260K.bin");
  HONE_REQUIRE_TEST_DATA(answers, "lm/stories260K.expected.json");
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "m.gguf";
  const auto model = open_model_or_throw(stories);
  write_gguf(path,
             {model->architecture(), model->tensors(), model->tokenizer().get(), Json::object()});
  const Json expected = read_json_file(answers);
  Json prompts = Json::array();
  for (const Json& one : expected["cases"]) prompts.push_back(one["prompt"]);
  const Json rows = parse_json(
      run_peer("tests/support/llama_cpp_greedy.py", {path.string(), prompts.dump(), "100"}),
      "llama.cpp");
  ASSERT_EQ(rows.size(), 3u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["prompt_ids"], expected["cases"][i]["prompt_ids"]);
    EXPECT_EQ(rows[i]["ids"], expected["cases"][i]["generated_ids"]);
  }
}

}  // namespace
}  // namespace hone::model_io
