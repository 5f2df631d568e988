// SPDX-License-Identifier: Apache-2.0
// The engine on GGUF models of every block type, in one file and in parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/model_io/write_model.h"
#include "tests/infer/engine_fixture.h"
#include "tests/model_io/tiny_gguf.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

namespace fs = std::filesystem;

std::vector<TokenId> some_ids() {
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 40; ++i) ids.push_back(i * 7 % 48);
  return ids;
}

std::vector<float> logits_of(const fs::path& model, Activations activations,
                             Executor& executor = serial_executor(), Index chunk = 512) {
  EngineOptions options;
  options.executor = &executor;
  options.activations = activations;
  options.prefill_chunk = chunk;
  options.need_tokenizer = false;
  const auto engine = Engine::open_or_throw(model, options);
  std::vector<float> logits;
  engine->score(some_ids(), {.on_logits = [&](Index, Index, std::span<const float> some) {
                  logits.insert(logits.end(), some.begin(), some.end());
                }});
  return logits;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(error / size);
}

// With f32 activations, products see exactly the decoded weights, so the logits are those of the
// f32 model bit for bit. int8 activations are off by about a half of 1/127 per value.
TEST(BlockTypes, logits_are_those_of_the_decoded_model) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "m.gguf", wide = folder.path() / "f32.gguf";
  for (const GgufType type : test::read_only_types()) {
    test::write_tiny_gguf(path, {type});
    const auto model =
        model_io::open_model_or_throw(path, {.tokenizer = {}, .need_tokenizer = false});
    write_gguf(wide, {model->architecture(), model->tensors(), nullptr, Json::object()},
               model_io::StoreType::F32);
    const auto name = gguf_type_info(static_cast<std::uint32_t>(type), "x").name;
    const std::vector<float> wanted = logits_of(wide, Activations::Float32);
    ASSERT_GE(wanted.size(), (some_ids().size() - 1) * 48);
    EXPECT_TRUE(same_bits(logits_of(path, Activations::Float32), wanted)) << name;
    EXPECT_LT(distance(logits_of(path, Activations::Int8), wanted), 0.05) << name;
  }
}

TEST(BlockTypes, logits_do_not_depend_on_threads_chunks_or_the_number_of_files) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "m.gguf";
  test::write_tiny_gguf(path);
  test::write_parts(folder.path(), test::tiny_split());
  ThreadPool pool(3);
  const std::vector<float> wanted = logits_of(path, Activations::Int8);
  EXPECT_TRUE(same_bits(logits_of(path, Activations::Int8, pool), wanted));
  EXPECT_TRUE(same_bits(logits_of(path, Activations::Int8, pool, 1), wanted));
  EXPECT_TRUE(same_bits(logits_of(path, Activations::Int8, serial_executor(), 5), wanted));
  for (const std::size_t part : {0, 2})
    EXPECT_TRUE(
        same_bits(logits_of(test::part_path(folder.path(), part), Activations::Int8), wanted));
}

TEST(BlockTypes, a_scale_that_is_not_finite_is_a_corrupt_file) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "m.gguf";
  test::write_tiny_gguf(path, {GgufType::Q4_K});
  std::string bytes = read_text_file(path);
  // The last matrix is ffn_down; its data ends before the three vectors of 1024 bytes.
  const std::size_t block = bytes.size() - 3 * 1024 - 144;
  bytes[block + 3] = 0x7c;  // dmin: infinity or NaN
  write_text_file(path, bytes);
  try {
    logits_of(path, Activations::Int8);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::CorruptFile) << error.what();
  }
}

}  // namespace
}  // namespace hone::infer
