// SPDX-License-Identifier: Apache-2.0
// Weights that are quantized while they are loaded, and the cache of packed weights. Both give the
// logits of the file that `hone convert` writes, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "hone/core/file/file_io.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/model_io/write_model.h"
#include "tests/infer/engine_fixture.h"
#include "tests/model_io/tiny_gguf.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

namespace fs = std::filesystem;
using hone::test::same_bits;
using hone::test::TinyModel;
using model_io::StoreType;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Loaded {
  std::vector<float> logits;
  ModelInfo info;
};

EngineOptions engine_options(const WeightOptions& weights, Activations act = Activations::Int8) {
  EngineOptions options;
  options.executor = &serial_executor();
  options.need_tokenizer = false;
  options.weights = weights;
  options.activations = act;
  return options;
}

Loaded load(const fs::path& model, const WeightOptions& weights = {},
            Activations act = Activations::Int8) {
  const auto engine = Engine::open_or_throw(model, engine_options(weights, act));
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 40; ++i) ids.push_back(i * 7 % 48);
  Loaded out{.logits = {}, .info = engine->info()};
  engine->score(ids, {.on_logits = [&](Index, Index, std::span<const float> some) {
                  out.logits.insert(out.logits.end(), some.begin(), some.end());
                }});
  return out;
}

// With a matrix of 40 columns, which is no multiple of 32.
model_io::Architecture architecture(bool tied) {
  model_io::Architecture a = hone::test::tiny_architecture();
  a.tied_embeddings = tied;
  return a;
}

class LoadWeights : public testing::Test {
 protected:
  fs::path at(std::string_view name) const { return folder_.path() / name; }
  hone::test::TemporaryFolder folder_;
};

TEST_F(LoadWeights, a_folder_quantized_on_loading_equals_the_artifact) {
  for (const bool tied : {false, true}) {
    const TinyModel model(architecture(tied));
    for (const StoreType stored : {StoreType::F32, StoreType::F16, StoreType::BF16}) {
      write_hugging_face(at("dense"), model.source(), stored);
      const auto dense = test::open_bare(at("dense"));
      const model_io::ModelSource source{dense->architecture(), dense->tensors(), nullptr,
                                         Json::object()};
      write_artifact(at("q8"), source, StoreType::Q8_0);
      write_artifact(at("q4"), source, StoreType::Q4_0);
      for (const Activations act : {Activations::Int8, Activations::Float32}) {
        const auto q8 = load(at("dense"), {.format = WeightFormat::Q8}, act);
        EXPECT_TRUE(same_bits(q8.logits, load(at("q8"), {}, act).logits));
        const auto q4 = load(at("dense"), {.format = WeightFormat::Q4}, act);
        EXPECT_TRUE(same_bits(q4.logits, load(at("q4"), {}, act).logits));
        EXPECT_FALSE(same_bits(q4.logits, q8.logits));
        EXPECT_EQ(q8.info.weight_bytes, load(at("q8")).info.weight_bytes);
      }
    }
  }
}

TEST_F(LoadWeights, gguf_and_llama2c_quantized_on_loading_equal_converted_gguf) {
  model_io::Architecture a = hone::test::tiny_architecture();
  a.head_dim = a.rope.rotary_dims = 8;  // as llama2.c wants them
  const TinyModel model(a);
  write_gguf(at("dense.gguf"), model.source(), StoreType::F32);
  write_llama2c(at("dense.bin"), model.source());
  write_gguf(at("q8.gguf"), model.source(), StoreType::Q8_0);
  write_gguf(at("q4.gguf"), model.source(), StoreType::Q4_0);
  for (const char* dense : {"dense.gguf", "dense.bin"}) {
    EXPECT_TRUE(same_bits(load(at(dense), {.format = WeightFormat::Q8}).logits,
                          load(at("q8.gguf")).logits));
    EXPECT_TRUE(same_bits(load(at(dense), {.format = WeightFormat::Q4}).logits,
                          load(at("q4.gguf")).logits));
  }
}

TEST_F(LoadWeights, what_stays_as_it_is_is_listed) {
  const TinyModel model(architecture(false));
  write_hugging_face(at("dense"), model.source());
  EXPECT_THAT(load(at("dense")).info.kept_weights, IsEmpty());
  const auto kept = load(at("dense"), {.format = WeightFormat::Q8}).info.kept_weights;
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].name, "model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(kept[0].dtype, "f16");
  EXPECT_EQ(kept[0].reason, "40 columns are not a multiple of 32");
  write_gguf(at("q4.gguf"), model.source(), StoreType::Q4_0);
  const auto file = load(at("q4.gguf")), q8 = load(at("q4.gguf"), {.format = WeightFormat::Q8});
  EXPECT_TRUE(same_bits(file.logits, q8.logits));  // is not quantized twice
  ASSERT_EQ(q8.info.kept_weights.size(), 2u * 7 + 2);
  EXPECT_EQ(q8.info.kept_weights.front().name, "lm_head.weight");
  EXPECT_EQ(q8.info.kept_weights.front().dtype, "q4_0");
}

TEST_F(LoadWeights, a_weight_that_is_not_finite_is_named) {
  const TinyModel model(architecture(false));
  std::vector<model_io::NamedMatrix> tensors = model.tensors();
  std::vector<float> values(32 * 64, std::numeric_limits<float>::infinity());
  for (model_io::NamedMatrix& tensor : tensors) {
    if (tensor.name == "model.layers.1.self_attn.o_proj.weight") {
      tensor.matrix.bytes = std::as_bytes(std::span(values));
    }
  }
  model_io::write_hugging_face(at("m"), {model.architecture(), tensors, nullptr, Json::object()});
  EXPECT_THAT(hone::test::error_of([&] { load(at("m"), {.format = WeightFormat::Q4}); }),
              HasSubstr("o_proj"));
}

class PackCacheTest : public LoadWeights {
 protected:
  PackCacheTest() { write_model(1); }
  void write_model(std::uint64_t seed) const {
    write_hugging_face(at("m"), TinyModel(architecture(false), seed).source());
  }
  // Loads with the cache, and what was warned of meanwhile.
  Loaded cached(const fs::path& model, std::string* warnings = nullptr,
                WeightFormat format = WeightFormat::File) const {
    testing::internal::CaptureStderr();
    Loaded out = load(model, {.format = format, .pack_cache = at("cache")});
    const std::string text = testing::internal::GetCapturedStderr();
    if (warnings != nullptr) *warnings = text;
    return out;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::recursive_directory_iterator(at("cache"))) {
      if (entry.is_regular_file()) out.push_back(entry.path());
    }
    return out;
  }
};

TEST_F(PackCacheTest, later_loads_map_the_file_and_give_the_same_logits) {
  hone::test::write_tiny_gguf(at("k.gguf"));
  write_gguf(at("q8.gguf"), TinyModel(architecture(true)).source(), StoreType::Q8_0);
  for (const char* name : {"m", "k.gguf", "q8.gguf"}) {
    for (const WeightFormat format : {WeightFormat::File, WeightFormat::Q8, WeightFormat::Q4}) {
      const auto plain = load(at(name), {.format = format});
      EXPECT_FALSE(plain.info.weights_are_mapped);
      std::string warnings;
      for (int run = 0; run < 3; ++run) {
        const auto mapped = cached(at(name), &warnings, format);
        EXPECT_EQ(warnings, "");
        EXPECT_TRUE(mapped.info.weights_are_mapped);
        EXPECT_TRUE(same_bits(mapped.logits, plain.logits)) << name;
        EXPECT_EQ(mapped.info.weight_bytes, plain.info.weight_bytes);
        EXPECT_EQ(mapped.info.kept_weights.size(), plain.info.kept_weights.size());
      }
    }
  }
  EXPECT_EQ(files().size(), 9u);
}

TEST_F(PackCacheTest, a_model_that_is_replaced_is_packed_again_with_a_warning) {
  cached(at("m"));
  write_model(2);
  std::string warnings;
  const auto mapped = cached(at("m"), &warnings);
  EXPECT_THAT(warnings, HasSubstr("packed again"));
  EXPECT_TRUE(same_bits(mapped.logits, load(at("m")).logits));
  EXPECT_EQ(files().size(), 1u);  // of the new model
  cached(at("m"), &warnings);
  EXPECT_EQ(warnings, "");
}

TEST_F(PackCacheTest, damaged_and_hostile_files_are_packed_again_with_a_warning) {
  const auto plain = load(at("m"));
  cached(at("m"));
  const fs::path file = files().front();
  const std::string good = read_text_file(file);
  std::string flipped = good, wrong_sum = good;
  flipped[good.size() / 2] ^= 1;
  wrong_sum.back() ^= 1;
  std::string swapped = good;
  swapped.replace(swapped.find("hone.packed.layout\":\"") + 21, 4, "xxxx");
  const std::vector<std::string> lies{"",
                                      "x",
                                      std::string(8, '\xff'),
                                      good.substr(0, good.size() - 1),
                                      good + "x",
                                      flipped,
                                      swapped,
                                      good.substr(0, 4096),
                                      wrong_sum};
  for (const std::string& lie : lies) {
    write_text_file(file, lie);
    std::string warnings;
    const auto mapped = cached(at("m"), &warnings);
    EXPECT_THAT(warnings, HasSubstr("packed again"));
    EXPECT_TRUE(same_bits(mapped.logits, plain.logits));
    EXPECT_EQ(read_text_file(file), good);
  }
}

TEST_F(PackCacheTest, a_folder_that_cannot_be_used_is_a_warning) {
  write_text_file(at("cache"), "a file");
  std::string warnings;
  const auto loaded = cached(at("m"), &warnings);
  EXPECT_THAT(warnings, HasSubstr("not kept"));
  EXPECT_FALSE(loaded.info.weights_are_mapped);
  EXPECT_TRUE(same_bits(loaded.logits, load(at("m")).logits));
}

TEST_F(PackCacheTest, starts_at_the_same_time_end_well) {
  const auto plain = load(at("m"));
  std::vector<std::thread> threads;
  std::vector<Loaded> loaded(6);
  testing::internal::CaptureStderr();
  for (Loaded& one : loaded) {
    threads.emplace_back([&] { one = load(at("m"), {.pack_cache = at("cache")}); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("warning")));
  for (const Loaded& one : loaded) {
    EXPECT_TRUE(one.info.weights_are_mapped);
    EXPECT_TRUE(same_bits(one.logits, plain.logits));
  }
  EXPECT_EQ(files().size(), 1u);
}

// A file that is truncated fails the requests that need it; the process goes on.
TEST_F(PackCacheTest, truncated_files_fail_requests) {
  const auto failure_of = [](Engine& engine) {
    const auto sink = test::run_request(engine, test::greedy({1, 5, 9}, 4));
    EXPECT_EQ(sink->last().finished, FinishReason::Failed);
    EXPECT_EQ(sink->last().error_category, ErrorCategory::CorruptFile);
    return sink->last().error;
  };
  const auto from_memory = Engine::open_or_throw(at("m"), engine_options({}));
  EXPECT_EQ(test::run_request(*from_memory, test::greedy({1}, 2))->tokens.size(), 2u);
  const auto mapped = Engine::open_or_throw(at("m"), engine_options({.pack_cache = at("cache")}));
  EXPECT_EQ(test::run_request(*mapped, test::greedy({1}, 2))->tokens.size(), 2u);
  fs::resize_file(files().front(), 4096);
  EXPECT_THAT(failure_of(*mapped), HasSubstr("packed.safetensors] The file was truncated"));
  fs::resize_file(at("m") / "model.safetensors", 0);  // has the embedding
  EXPECT_THAT(failure_of(*from_memory), HasSubstr("model.safetensors] The file was truncated"));
}

}  // namespace
}  // namespace hone::infer
