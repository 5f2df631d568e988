// SPDX-License-Identifier: Apache-2.0
// 10,000 seeded mutations of every kind of untrusted file, in process: each opens or throws one
// hone::Error, within bounded memory and time. Run it in a build with
// HONE_SANITIZE=address,undefined to see stray reads too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>

#include "hone/core/file/file_io.h"
#include "hone/core/format/gguf.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/log.h"
#include "hone/text/format/sentencepiece_model.h"
#include "hone/text/format/tok_bin.h"
#include "hone/text/format/tokenizer_json.h"
#include "tests/fuzz/mutation_support.h"
#include "tests/model_io/llama2c_export.h"
#include "tests/model_io/tiny_gguf.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using test::TinyModel;

// Opens a model whose file `path` is replaced by each mutation.
std::function<void(const std::string&)> opener(const fs::path& path, const fs::path& model) {
  return [=](const std::string& bytes) {
    test::write_plainly(path, bytes);
    test::open_bare(model);
  };
}

class Mutation : public testing::Test {
 protected:
  Mutation() : folder_(test::make_memory_folder()), model_(test::tiny_architecture()) {
    set_log_level(LogLevel::Error);  // an unserved tokenizer is only a warning when none is needed
  }
  const fs::path& folder() const { return folder_.path(); }

  test::TemporaryFolder folder_;
  TinyModel model_;
};

TEST_F(Mutation, safetensors_header) {
  write_hugging_face(folder() / "hf", model_.source());
  const std::string seed = read_text_file(folder() / "hf/model.safetensors");
  EXPECT_GT(test::run_mutations(
                seed, test::mutate_safetensors,
                [](const std::string& file) { parse_safetensors(test::as_bytes(file), "fuzz"); })
                .refused,
            1000);
}

TEST_F(Mutation, hugging_face_weights) {
  write_hugging_face(folder() / "hf", model_.source());
  const fs::path path = folder() / "hf/model.safetensors";
  EXPECT_GT(test::run_mutations(read_text_file(path), test::mutate_safetensors,
                                opener(path, folder() / "hf"))
                .refused,
            1000);
}

TEST_F(Mutation, packed_artifact) {
  write_artifact(folder() / "q", model_.source(), model_io::StoreType::Q4_0);
  const fs::path path = folder() / "q/model.safetensors";
  EXPECT_GT(test::run_mutations(read_text_file(path), test::mutate_safetensors,
                                opener(path, folder() / "q"))
                .refused,
            1000);
}

TEST_F(Mutation, hugging_face_config) {
  write_hugging_face(folder() / "hf", model_.source());
  const fs::path path = folder() / "hf/config.json";
  EXPECT_GT(
      test::run_mutations(read_text_file(path), test::mutate_json, opener(path, folder() / "hf"))
          .refused,
      1000);
}

TEST_F(Mutation, gguf) {
  const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(48));
  write_gguf(folder() / "m.gguf", model_.source(tokenizer.get()), model_io::StoreType::Q8_0);
  const std::string seed = read_text_file(folder() / "m.gguf");
  const std::size_t head = 4096;  // keys, vocabulary and tensor descriptions
  ASSERT_GT(seed.size(), 2 * head);
  EXPECT_GT(test::run_mutations(seed, test::mutate_head(head),
                                opener(folder() / "m.gguf", folder() / "m.gguf"))
                .refused,
            1000);
}

void decode_last_rows(const fs::path& path) {
  const auto model = test::open_bare(path);
  for (const model_io::NamedMatrix& tensor : model->tensors()) {
    std::vector<float> row(static_cast<std::size_t>(tensor.matrix.cols));
    decode_row(tensor.matrix, tensor.matrix.rows - 1, row);
  }
}

// A model of all block types that are only read. Decodes a row of each tensor too. The blocks are
// mutated as well: their scales may be infinite or no numbers.
TEST_F(Mutation, gguf_of_k_quants) {
  const fs::path path = folder() / "k.gguf";
  test::write_tiny_gguf(path);
  const std::string seed = read_text_file(path);
  const auto open = opener(path, path);
  const auto mutate = [head = test::mutate_head(2048)](std::string& bytes, PhiloxStream& random) {
    random.below(4) == 0 ? test::mutate_binary(bytes, random) : head(bytes, random);
  };
  EXPECT_GT(test::run_mutations(seed, mutate,
                                [&](const std::string& bytes) {
                                  open(bytes);
                                  decode_last_rows(path);
                                })
                .refused,
            1000);
}

// The first part has the keys of the model, the others only those of the split.
TEST_F(Mutation, parts_of_a_split_gguf) {
  test::write_parts(folder(), test::tiny_split());
  const fs::path first = test::part_path(folder(), 0);
  for (const std::size_t part : {0, 1}) {
    const fs::path path = test::part_path(folder(), part);
    const std::string seed = read_text_file(path);
    const auto open = opener(path, first);
    EXPECT_GT(test::run_mutations(seed, test::mutate_head(std::min<std::size_t>(seed.size(), 512)),
                                  [&](const std::string& bytes) {
                                    open(bytes);
                                    decode_last_rows(first);
                                  })
                  .refused,
              1000);
    write_text_file(path, seed);
  }
}

// Mutations that agree in no part with another one.
TEST_F(Mutation, all_parts_of_a_split_gguf) {
  test::write_parts(folder(), test::tiny_split());
  std::vector<std::string> parts;
  for (std::size_t part = 0; part < 3; ++part) {
    parts.push_back(read_text_file(test::part_path(folder(), part)));
  }
  const fs::path last = test::part_path(folder(), 2);
  const auto head = test::mutate_head(512);
  const auto mutate = [&](std::string& bytes, PhiloxStream& random) {
    for (const std::size_t part : {0, 1}) {
      std::string mutated = parts[part];
      if (random.below(2) == 0) head(mutated, random);
      test::write_plainly(test::part_path(folder(), part), mutated);
    }
    head(bytes, random);
  };
  EXPECT_GT(test::run_mutations(parts[2], mutate,
                                [&](const std::string& bytes) {
                                  test::write_plainly(last, bytes);
                                  decode_last_rows(last);
                                })
                .refused,
            1000);
}

TEST_F(Mutation, gguf_vocabulary_of_gpt_2) {
  HONE_REQUIRE_TEST_DATA(path, "tokenizers/ggml-vocab-gpt-2.gguf");
  const std::string whole = read_text_file(path);
  // 1.7 MB are mostly pieces; parsing is what is under test, building the tokenizer is not.
  EXPECT_GT(test::run_mutations(whole, test::mutate_head(2048),
                                [](const std::string& file) {
                                  const GgufFile gguf = parse_gguf(test::as_bytes(file), "fuzz");
                                  gguf.strings("tokenizer.ggml.tokens");
                                  gguf.integers("tokenizer.ggml.token_type");
                                })
                .refused,
            1000);
}

TEST_F(Mutation, llama2c) {
  model_io::Architecture a = test::tiny_architecture();
  a.head_dim = a.rope.rotary_dims = 8;
  const TinyModel model(a);
  const fs::path path = folder() / "m.bin";
  write_llama2c(path, model.source());
  const std::string seed = read_text_file(path);
  EXPECT_GT(test::run_mutations(seed, test::mutate_head(28), opener(path, path)).refused, 1000);
  const std::string modern = test::export_model(model, 2, 16);
  EXPECT_GT(test::run_mutations(modern, test::mutate_head(48), opener(path, path)).refused, 1000);
}

TEST_F(Mutation, tokenizer_json) {
  const auto vocabulary = test::tiny_sentencepiece(48);
  const std::string seed = text::to_tokenizer_json(vocabulary).dump();
  EXPECT_GT(test::run_mutations(seed, test::mutate_json,
                                [](const std::string& file) {
                                  text::make_tokenizer(
                                      text::read_tokenizer_json(parse_json(file, "fuzz"), "fuzz"),
                                      "fuzz");
                                })
                .refused,
            1000);
}

TEST_F(Mutation, tok_bin) {
  HONE_REQUIRE_TEST_DATA(path, "lm/tok512.bin");
  EXPECT_GT(test::run_mutations(read_text_file(path), test::mutate_binary,
                                [](const std::string& file) {
                                  text::make_tokenizer(
                                      text::read_tok_bin(test::as_bytes(file), "fuzz"), "fuzz");
                                })
                .refused,
            1000);
}

TEST_F(Mutation, sentencepiece_model) {
  HONE_REQUIRE_TEST_DATA(path, "lm/tok512.model");
  EXPECT_GT(test::run_mutations(read_text_file(path), test::mutate_binary,
                                [](const std::string& file) {
                                  text::SentencePieceModel model =
                                      text::read_sentencepiece_model(test::as_bytes(file), "fuzz");
                                  text::run_self_test(
                                      model, *text::make_tokenizer(model.vocabulary, "fuzz"),
                                      "fuzz");
                                })
                .refused,
            1000);
}

}  // namespace
}  // namespace hone
