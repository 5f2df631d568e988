// SPDX-License-Identifier: Apache-2.0
// One test per fault of the Python implementation that hone replaces: each names what must hold
// instead. Those of speculation are in speculation_faults_test.cc; those of batching and the server
// have no counterpart here yet.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "hone/core/check.h"
#include "hone/core/file/mmap_file.h"
#include "hone/core/format/safetensors.h"
#include "hone/core/philox.h"
#include "hone/infer/model/model_runner.h"
#include "tests/infer/engine_fixture.h"
#include "tests/infer/text_cache.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/scripted_clock.h"
#include "tests/support/test_data.h"
#include "tests/support/watched_executor.h"

namespace hone::infer {
namespace {

namespace fs = std::filesystem;
using hone::test::TemporaryFolder;
using hone::test::TinyModel;
using test::CollectSink;
using test::greedy;
using test::run_request;

Index resident_bytes() {
  std::ifstream file("/proc/self/statm");
  Index total = 0, resident = 0;
  file >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// A written random model and engines on it.
class ReferenceFault : public testing::Test {
 protected:
  fs::path write_model(const model_io::Architecture& architecture) {
    const fs::path path = folder_.path() / "model";
    const TinyModel model(architecture);
    model_io::write_hugging_face(path, model.source());
    return path;
  }
  static std::unique_ptr<Engine> open(const fs::path& model, EngineOptions options = {}) {
    if (options.executor == nullptr) options.executor = &serial_executor();
    options.need_tokenizer = false;
    return Engine::open_or_throw(model, options);
  }
  // Greedy, and stop tokens end it.
  static Request answering(std::vector<TokenId> prompt, Index tokens) {
    Request request = greedy(std::move(prompt), tokens);
    request.ignore_eos = false;
    return request;
  }

  TemporaryFolder folder_;
};

// A model and its runner, for what an engine hides: the cache.
struct OpenRunner {
  explicit OpenRunner(const fs::path& path, Dtype kv = Dtype::Float16)
      : file(test::open_bare(path)),
        runner(*file, {.act = kernels::Act::Float32, .kv = kv, .max_rows = 64}, serial_executor()) {
  }

  bool forward(std::span<const TokenId> tokens, test::TextCache& cache) {
    const auto rows = static_cast<Index>(tokens.size());
    const bool is_done = runner.forward(
        {.tokens = {tokens.begin(), tokens.end()},
         .sequences = {
             {.rows = rows, .first_position = cache.length(), .tables = {cache.table()}}}});
    cache.commit(rows);
    return is_done;
  }

  std::unique_ptr<model_io::ModelFile> file;
  ModelRunner runner;
};

std::vector<TokenId> random_tokens(PhiloxStream& random, Index count, Index vocab) {
  std::vector<TokenId> tokens;
  for (Index i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>(random.below(static_cast<std::uint32_t>(vocab))));
  return tokens;
}

TEST_F(ReferenceFault, f1_the_size_formula_counts_bytes_and_key_value_heads) {
  model_io::Architecture a;
  a.layers = 22;
  a.heads = 32;
  a.kv_heads = 4;
  a.head_dim = 64;
  EXPECT_EQ(a.kv_bytes_per_token(2), 22528);
  model_io::Architecture all_heads = a;
  all_heads.kv_heads = a.heads;
  EXPECT_EQ(all_heads.kv_bytes_per_token(2), 8 * a.kv_bytes_per_token(2));
  EXPECT_EQ(a.kv_bytes_per_token(4), 2 * a.kv_bytes_per_token(2));

  const fs::path path = write_model(hone::test::tiny_architecture());
  const auto engine = open(path);
  EXPECT_EQ(engine->info().kv_bytes_per_token, engine->info().architecture.kv_bytes_per_token(2));
}

// Panels of f32 have no padding with dimensions of this kind, so that the packed bytes are those of
// the matrices.
TEST_F(ReferenceFault, f1_a_decoded_token_reads_each_matrix_once_and_no_embedding_table) {
  model_io::Architecture a = hone::test::tiny_architecture();
  a.vocab_size = 96;
  a.hidden_size = 64;
  a.intermediate_size = 96;
  const Index q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
  const Index layer = a.hidden_size * (2 * q + 2 * kv + 3 * a.intermediate_size);
  const Index weights = 4 * (a.layers * layer + a.vocab_size * a.hidden_size);
  for (const bool tied : {false, true}) {
    a.tied_embeddings = tied;
    const auto engine = open(write_model(a));
    EXPECT_EQ(engine->info().weight_bytes, weights) << tied;
    fs::remove_all(folder_.path() / "model");
  }
  ModelInfo info;
  info.weight_bytes = 1000;
  info.kv_bytes_per_token = 10;
  EXPECT_EQ(decode_bytes(info, 7, 0), 0);
  EXPECT_EQ(decode_bytes(info, 7, 1), 1000 + 7 * 10);
  EXPECT_EQ(decode_bytes(info, 7, 3), 3 * 1000 + (7 + 8 + 9) * 10);
  EXPECT_EQ(decode_bytes(info, 0, 5), decode_bytes(info, 0, 2) + decode_bytes(info, 2, 3));
  info.windowed = {{.window = 4, .bytes_per_token = 6}};  // the token itself and three before it
  EXPECT_EQ(decode_bytes(info, 2, 4), 4 * 1000 + (2 + 3 + 4 + 5) * 4 + (2 + 3 + 3 + 3) * 6);
}

TEST_F(ReferenceFault, f2_memory_follows_the_tokens_and_not_the_limits) {
  // The limits whose cache the reference allocates at once, 4,831,838,208 bytes: 12 layers and
  // heads, head_dim 64, f32, 32 sequences of 2048 positions. Everything else is small.
  model_io::Architecture a = hone::test::tiny_architecture();
  a.layers = a.heads = a.kv_heads = 12;
  a.head_dim = a.rope.rotary_dims = 64;
  a.context = 32 * 2048;
  ASSERT_EQ(a.context * a.kv_bytes_per_token(4), 4831838208);
  const fs::path path = write_model(a);
  EngineOptions options;
  options.kv = KvDtype::Float32;
  const Index before = resident_bytes();
  const auto engine = open(path, options);
  const auto got = run_request(*engine, greedy({1, 5, 9}, 20));
  ASSERT_EQ(got->tokens.size(), 20u);
  EXPECT_LT(resident_bytes() - before - engine->info().weight_bytes, Index{16} << 20);
}

TEST_F(ReferenceFault, f3_positions_without_a_token_are_never_read) {
  const fs::path path = write_model(hone::test::tiny_architecture());
  PhiloxStream random(3);
  const auto tokens = random_tokens(random, 37, 48);
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16}) {
    OpenRunner open(path, dtype);
    std::vector<std::vector<float>> results;
    for (const std::byte fill : {std::byte{0}, std::byte{0xff}}) {  // zeros, NaN
      test::TextCache cache(open.runner.kv_layout(), 64);
      for (std::byte* block : cache.table()) std::fill_n(block, cache.layout().block_bytes(), fill);
      ASSERT_TRUE(open.forward(std::span(tokens).first(36), cache));
      ASSERT_TRUE(open.forward(std::span(tokens).last(1), cache));
      const auto logits = open.runner.logits(0, 1);
      results.emplace_back(logits.begin(), logits.end());
    }
    for (const float logit : results[1]) ASSERT_TRUE(std::isfinite(logit));
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST_F(ReferenceFault, f4_a_token_lands_at_the_position_that_counts_the_tokens_before_it) {
  const fs::path path = write_model(hone::test::tiny_architecture());
  OpenRunner open(path);
  PhiloxStream random(4);
  const auto bytes_of_cache = [](const test::TextCache& cache) {
    std::vector<std::byte> bytes;
    for (const std::byte* block : cache.table())
      bytes.insert(bytes.end(), block, block + cache.layout().block_bytes());
    return bytes;
  };
  for (int trial = 0; trial < 40; ++trial) {
    const Index length = 1 + random.below(64);
    const auto tokens = random_tokens(random, length, 48);
    test::TextCache whole(open.runner.kv_layout(), 64), parts(whole.layout(), 64);
    ASSERT_TRUE(open.forward(tokens, whole));
    Index done = 0;
    while (done < length) {
      ASSERT_EQ(parts.length(), done);
      const Index rows = std::min<Index>(length - done, 1 + random.below(1 + random.below(20)));
      ASSERT_TRUE(open.forward(
          std::span(tokens).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(rows)),
          parts));
      done += rows;
    }
    ASSERT_EQ(parts.length(), length);
    ASSERT_EQ(bytes_of_cache(parts), bytes_of_cache(whole)) << "trial " << trial;
  }
}

TEST_F(ReferenceFault, f5_a_model_on_disk_answers_from_end_to_end) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  EngineOptions options;
  options.kv = KvDtype::Float32;
  options.activations = Activations::Float32;
  const auto engine = test::open_stories(model, options);
  const auto got = run_request(*engine, greedy(engine->tokenizer().encode("Once upon a time"), 11));
  EXPECT_EQ(got->text.substr(0, 26), ", there was a little girl ");
}

TEST_F(ReferenceFault, f6_every_stop_id_of_the_files_ends_a_text_and_no_other_id_does) {
  model_io::Architecture a = hone::test::tiny_architecture();
  a.stop_ids = {2, 7, 11};
  const auto engine = open(write_model(a));
  EXPECT_EQ(engine->info().architecture.stop_ids, a.stop_ids);
  for (TokenId id = 0; id < a.vocab_size; ++id) {
    Request request = answering({1, 20}, 3);
    request.sampling.logit_bias = {{id, 100}};
    const auto got = run_request(*engine, request);
    const bool stops = std::ranges::binary_search(a.stop_ids, id);
    ASSERT_EQ(got->tokens.front(), id);
    EXPECT_EQ(got->last().finished, stops ? FinishReason::Stop : FinishReason::Length) << id;
    EXPECT_EQ(got->tokens.size(), stops ? 1u : 3u) << id;
  }
}

TEST_F(ReferenceFault, f6_eight_requests_that_end_at_different_places_give_eight_answers) {
  const auto engine = open(write_model(hone::test::tiny_architecture()));
  std::vector<std::shared_ptr<CollectSink>> sinks;
  for (Index i = 0; i < 8; ++i) {
    Request request = answering({1, static_cast<TokenId>(20 + i)}, 30);
    request.sampling.logit_bias = {{2, 100}};  // the stop token, as soon as it is allowed
    request.min_tokens = 3 * i;
    sinks.push_back(std::make_shared<CollectSink>());
    engine->submit(request, sinks.back());
  }
  while (engine->step()) {
  }
  for (std::size_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(sinks[i]->is_finished());
    EXPECT_EQ(sinks[i]->tokens.size(), 3 * i + 1);
    EXPECT_EQ(sinks[i]->last().finished, FinishReason::Stop);
    EXPECT_EQ(sinks[i]->tokens.back(), 2);
  }
}

TEST_F(ReferenceFault, f7_a_seed_fixes_the_text_whoever_else_waits) {
  const fs::path path = write_model(hone::test::tiny_architecture());
  const auto sampled = [](std::uint64_t seed) {
    Request request = greedy({1, 30, 31, 32, 33}, 25);
    request.sampling = {.temperature = 1.2f, .top_k = 30, .top_p = 0.98f, .seed = seed};
    return request;
  };
  const auto alone = run_request(*open(path), sampled(5))->tokens;
  EXPECT_NE(run_request(*open(path), sampled(6))->tokens, alone);
  EngineOptions options;
  options.prefill_chunk = 2;
  const auto engine = open(path, options);
  std::vector<std::shared_ptr<CollectSink>> sinks;
  for (const std::uint64_t seed : {9, 5, 8, 5}) {
    sinks.push_back(std::make_shared<CollectSink>());
    engine->submit(sampled(seed), sinks.back());
  }
  while (engine->step()) {
  }
  EXPECT_EQ(sinks[1]->tokens, alone);
  EXPECT_EQ(sinks[3]->tokens, alone);
  EXPECT_NE(sinks[0]->tokens, alone);
}

TEST_F(ReferenceFault, f8_phases_are_timed_apart_and_add_up_to_the_whole) {
  const auto engine = open(write_model(hone::test::tiny_architecture()));
  double closest = 1;  // another process may hold this one between two readings of the clock
  for (int trial = 0; trial < 8 && closest > 0.02; ++trial) {
    const std::int64_t begin = steady_clock().now_ns();
    const auto got = run_request(*engine, greedy({1, 30, 31}, 60));
    const double total = seconds_between(begin, steady_clock().now_ns());
    const Timings& timings = got->last().timings;
    EXPECT_GT(timings.prompt_s, 0);
    EXPECT_GT(timings.decode_s, 0);
    const double sum = timings.queue_s + timings.prompt_s + timings.decode_s;
    ASSERT_LE(sum, total);
    closest = std::min(closest, 1 - sum / total);
  }
  EXPECT_LE(closest, 0.02);
}

TEST_F(ReferenceFault, f15_no_request_gets_more_tokens_than_it_asked_for) {
  const auto engine = open(write_model(hone::test::tiny_architecture()));
  for (Index limit = 1; limit <= 40; ++limit) {
    const auto got = run_request(*engine, greedy({1, 30}, limit));
    EXPECT_EQ(static_cast<Index>(got->tokens.size()), limit);
    EXPECT_EQ(got->last().timings.generated_tokens, limit);
    EXPECT_EQ(got->last().finished, FinishReason::Length);
  }
}

TEST_F(ReferenceFault, f18_timers_stop_when_the_token_is_there) {
  hone::test::ScriptedClock clock;
  // Time passes only inside parallel regions, after their work.
  hone::test::WatchedExecutor executor({}, [&](int) { clock.advance(1); });
  EngineOptions options;
  options.executor = &executor;
  options.clock = &clock;
  const auto engine = open(write_model(hone::test::tiny_architecture()), options);
  const Index before = executor.regions;
  auto sink = std::make_shared<CollectSink>();
  engine->submit(greedy({1, 30, 31}, 6), sink);
  engine->step();
  const Index after_first = executor.regions;
  ASSERT_EQ(sink->tokens.size(), 1u);
  while (engine->step()) {
  }
  const Timings& timings = sink->last().timings;
  EXPECT_GT(after_first, before);
  EXPECT_DOUBLE_EQ(timings.prompt_s, static_cast<double>(after_first - before));
  EXPECT_DOUBLE_EQ(timings.decode_s, static_cast<double>(executor.regions - after_first));
}

// Share of a file's pages that lie in memory.
double resident_share(const fs::path& path) {
  const MmapFile file(path);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t size = file.bytes().size();
  std::vector<unsigned char> pages((size + page - 1) / page);
  if (::mincore(const_cast<std::byte*>(file.bytes().data()), size, pages.data()) != 0)
    throw std::runtime_error("mincore");
  const auto resident = std::ranges::count_if(pages, [](unsigned char p) { return (p & 1) != 0; });
  return static_cast<double>(resident) / static_cast<double>(pages.size());
}

TEST_F(ReferenceFault, f19_opening_a_model_reads_its_header_only) {
  model_io::Architecture a = hone::test::tiny_architecture();
  a.vocab_size = Index{1} << 21;  // 2^21 * 32 * 4 bytes
  a.tied_embeddings = true;
  // The header as written for a small vocabulary, then the real one over a file of holes.
  const fs::path path = write_model(hone::test::tiny_architecture());
  std::string header = "{";
  Index end = 0;
  for (const auto& plan : model_io::plan_tensors(a)) {
    const Index begin = std::exchange(end, end + plan.rows * plan.cols * 4);
    header +=
        concat(header.size() > 1 ? "," : "", "\"", plan.name, "\":{\"dtype\":\"F32\",\"shape\":[",
               plan.is_vector ? "" : concat(plan.rows, ","), plan.cols, "],\"data_offsets\":[",
               begin, ",", end, "]}");
  }
  header += "}";
  const std::uint64_t length = header.size();
  const fs::path weights = path / "model.safetensors";
  {
    std::ofstream file(weights, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header;
  }
  fs::resize_file(weights, 8 + header.size() + static_cast<std::size_t>(end));
  Json config = read_json_file(path / "config.json");
  config["vocab_size"] = a.vocab_size;
  config["tie_word_embeddings"] = true;
  write_json_file(path / "config.json", config);
  ASSERT_GE(fs::file_size(weights), std::uintmax_t{256} << 20);
  ASSERT_LT(resident_share(weights), 0.05) << "before";

  const auto file = test::open_bare(path);
  EXPECT_EQ(file->tensor("model.embed_tokens.weight").matrix.rows, a.vocab_size);
  EXPECT_EQ(file->architecture().parameters(), a.parameters());
  EXPECT_LT(resident_share(weights), 0.05);
}

TEST_F(ReferenceFault, f20_a_tensor_of_another_shape_is_refused_by_name) {
  const model_io::Architecture a = hone::test::tiny_architecture();
  const fs::path path = write_model(a);
  const TinyModel model(a);
  for (std::size_t wrong = 0; wrong < model.tensors().size(); ++wrong) {
    std::vector<SafetensorsWriter::Entry> plan;
    for (const auto& tensor : model.tensors())
      plan.push_back({tensor.name, Dtype::Float32,
                      tensor.is_vector ? Shape{tensor.matrix.cols}
                                       : Shape{tensor.matrix.rows, tensor.matrix.cols}});
    Shape& shape = plan[wrong].shape;
    shape[shape.rank() - 1] += 1;
    {
      SafetensorsWriter writer(path / "model.safetensors", plan);
      for (const auto& entry : plan)
        writer.write(std::vector<std::byte>(static_cast<std::size_t>(entry.shape.elements() * 4)));
      writer.commit();
    }
    try {
      open(path);
      ADD_FAILURE() << plan[wrong].name << " accepted as " << to_text(shape);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::CorruptFile);
      EXPECT_NE(std::string(error.what()).find(plan[wrong].name), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace hone::infer
