// SPDX-License-Identifier: Apache-2.0
// How much memory loading takes, and that processes share what they map. The kernel says both.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "hone/core/check.h"
#include "hone/model_io/write_model.h"
#include "tests/infer/engine_fixture.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

namespace hone::infer {
namespace {

namespace fs = std::filesystem;
using model_io::StoreType;

constexpr Index kMebibyte = Index{1} << 20;

// A field of /proc/self/status in bytes; 0 if it is not there.
Index status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

// Makes the peak of memory what is in use now. False where the kernel does not do that.
bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good() && status_bytes("VmHWM") < status_bytes("VmRSS") + 4 * kMebibyte;
}

// Sums a field of /proc/self/smaps over the mappings of files whose path ends like this.
Index smaps_bytes(const std::string& file, const std::string& field) {
  std::ifstream smaps("/proc/self/smaps");
  bool is_wanted = false;
  Index total = 0;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find('-') < line.find(':') && line.find(':') != std::string::npos &&
        line.find(" r") != std::string::npos) {
      is_wanted = line.ends_with(file);
    } else if (is_wanted && line.starts_with(field + ":")) {
      total += std::stoll(line.substr(field.size() + 1)) * 1024;
    }
  }
  return total;
}

// 190 MB in f32.
model_io::Architecture medium_architecture() {
  model_io::Architecture a = hone::test::tiny_architecture();
  a.vocab_size = 4096;
  a.hidden_size = 1024;
  a.intermediate_size = 2816;
  a.heads = a.kv_heads = 16;
  a.head_dim = a.rope.rotary_dims = 64;
  a.layers = 3;
  a.tied_embeddings = true;
  return a;
}

EngineOptions options_of(const WeightOptions& weights) {
  EngineOptions options;
  options.executor = &serial_executor();
  options.need_tokenizer = false;
  options.weights = weights;
  options.prefill_chunk = 16;
  options.max_sequences = 1;
  return options;
}

class LoadMemory : public testing::Test {
 protected:
  void write(StoreType type) {
    const hone::test::TinyModel model(medium_architecture());
    if (is_quantized(type)) {
      write_gguf(folder_.path() / "m.gguf", model.source(), type);
    } else {
      write_hugging_face(folder_.path() / "m", model.source(), type);
    }
  }
  hone::test::TemporaryFolder folder_;
};

// Without releasing the file's pages, the peak would have the whole file in it.
TEST_F(LoadMemory, the_peak_is_what_is_packed_and_the_largest_tensor) {
  struct Case {
    StoreType stored;
    WeightFormat format;
  };
  for (const auto& [stored, format] :
       {Case{StoreType::F32, WeightFormat::File}, Case{StoreType::F32, WeightFormat::Q8},
        Case{StoreType::F16, WeightFormat::Q4}}) {
    write(stored);
    const Index largest = 4096 * 1024 * (stored == StoreType::F32 ? 4 : 2);
    if (!reset_peak()) GTEST_SKIP() << "/proc/self/clear_refs does not reset the peak here";
    const Index before = status_bytes("VmHWM");
    const auto engine = Engine::open_or_throw(folder_.path() / "m", options_of({.format = format}));
    const Index peak = status_bytes("VmHWM") - before;
    const Index packed = engine->info().weight_bytes;
    EXPECT_GT(peak, packed - 4 * kMebibyte);
    EXPECT_LE(peak, packed + largest + 64 * kMebibyte) << name_of(stored);
    RecordProperty(concat("peak_", name_of(stored), "_", name_of(format)), concat(peak));
  }
}

TEST_F(LoadMemory, processes_share_the_pages_of_the_cache) {
  write(StoreType::Q8_0);
  const fs::path model = folder_.path() / "m.gguf";
  const WeightOptions weights{.format = WeightFormat::File, .pack_cache = folder_.path() / "cache"};
  int ready[2], go[2];
  ASSERT_EQ(::pipe(ready) | ::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {  // maps the cache for itself, and keeps it until the parent has looked
    ::close(go[1]);
    const auto engine = Engine::open_or_throw(model, options_of(weights));
    const auto sink = test::run_request(*engine, test::greedy({1, 2, 3}, 2));
    char byte = engine->info().weights_are_mapped ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) != 1 || ::read(go[0], &byte, 1) != 0) ::_exit(1);
    ::_exit(sink->tokens.size() == 2 ? 0 : 2);
  }
  ::close(ready[1]);
  ::close(go[0]);
  char byte = 'n';
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  const Index own = status_bytes("RssAnon");
  const auto engine = Engine::open_or_throw(model, options_of(weights));
  EXPECT_EQ(test::run_request(*engine, test::greedy({1, 2, 3}, 2))->tokens.size(), 2u);
  const Index packed = engine->info().weight_bytes;
  EXPECT_GE(smaps_bytes("packed.safetensors", "Rss"), packed);
  EXPECT_GE(smaps_bytes("packed.safetensors", "Shared_Clean"), packed / 10 * 9);
  EXPECT_LE(smaps_bytes("packed.safetensors", "Private_Dirty"), 0);
  // Their own memory does not grow with the model.
  EXPECT_LT(status_bytes("RssAnon") - own, 32 * kMebibyte);
  EXPECT_GT(packed, 40 * kMebibyte);
  ::close(go[1]);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hone::infer
