// SPDX-License-Identifier: Apache-2.0
// --trace: a Chrome trace of every command that computes.
#include <gmock/gmock.h>

#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::IsSupersetOf;

constexpr double kRounding = 2e-3;  // the format's microseconds have three decimals

struct Zone {
  std::string name;
  double begin = 0, end = 0;
  Json args;
  std::vector<const Zone*> inner = {};  // directly within, on the same thread

  double duration() const { return end - begin; }
};

// The zones of a trace by thread, in the order in which they began.
class Zones {
 public:
  explicit Zones(const fs::path& file) {
    const Json trace = read_json_file(file, {.depth = 8, .refuse_duplicate_keys = true});
    EXPECT_EQ(trace["otherData"]["zones_left_out"], 0);
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] == "M")
        names_[event["tid"].get<int>()] = event["args"]["name"].get<std::string>();
      if (event["ph"] != "X") continue;
      const double begin = event["ts"], end = begin + event["dur"].get<double>();
      threads_[event["tid"].get<int>()].push_back(
          {event["name"].get<std::string>(), begin, end, event.value("args", Json::object())});
    }
    for (auto& [tid, zones] : threads_) nest(zones);
  }

  std::vector<Zone> named(const std::string& name) const {
    std::vector<Zone> found;
    for (const auto& [tid, zones] : threads_) {
      std::ranges::copy_if(zones, std::back_inserter(found),
                           [&](const Zone& zone) { return zone.name == name; });
    }
    return found;
  }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& [tid, zones] : threads_) {
      for (const Zone& zone : zones) all.insert(zone.name);
    }
    return all;
  }
  // The command itself: the first zone of the main thread, which all others of it lie in.
  const Zone& root() const {
    for (const auto& [tid, name] : names_) {
      if (name == "main") return threads_.at(tid).front();
    }
    throw std::runtime_error("no main thread");
  }

 private:
  // Each zone lies wholly within those that are open when it begins, and what is directly within a
  // zone takes no longer than the zone.
  static void nest(std::vector<Zone>& zones) {
    std::ranges::stable_sort(zones, {}, &Zone::begin);
    std::vector<Zone*> open;
    for (Zone& zone : zones) {
      while (!open.empty() && open.back()->end <= zone.begin + kRounding) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(zone.end, open.back()->end + kRounding)
            << zone.name << " reaches out of " << open.back()->name;
        open.back()->inner.push_back(&zone);
      }
      open.push_back(&zone);
    }
    for (const Zone& zone : zones) {
      double sum = 0;
      for (const Zone* inner : zone.inner) sum += inner->duration();
      const double slack = kRounding * static_cast<double>(zone.inner.size() + 1);
      EXPECT_LE(sum, zone.duration() + slack) << zone.name;
    }
  }

  std::map<int, std::string> names_;
  std::map<int, std::vector<Zone>> threads_;
};

class Trace : public Cli {
 protected:
  Trace() : model_(write_tiny_model()) {}

  Zones trace(const Arguments& arguments, int status = 0) const {
    const std::string file = path("trace.json");
    fs::remove(file);
    const ProgramResult result = run_hone(arguments + Arguments{"--trace", file});
    EXPECT_EQ(result.status, status) << result.err;
    return Zones(file);
  }

  // Whether there is a temporary file, as there is while a file is written.
  bool has_temporary() const {
    const fs::directory_iterator files(folder_.path());
    return std::any_of(begin(files), end(files), [](const fs::directory_entry& entry) {
      return entry.path().string().find(".hone-tmp-") != std::string::npos;
    });
  }

  std::string model_;
};

TEST_F(Trace, generate_shows_prefill_decoding_layers_and_products_with_their_sizes) {
  const Zones zones = trace({"generate", model_, "-p", "a b", "-n", "4", "--temp", "0",
                             "--ignore-eos", "--prefill-chunk", "2", "--threads", "1"});
  EXPECT_EQ(zones.root().name, "generate");
  EXPECT_THAT(zones.names(),
              IsSupersetOf({"open model", "pack weights", "pack", "tokenize", "prefill", "decode",
                            "forward", "layer", "gemm", "attention", "rms_norm", "rope", "write_kv",
                            "logits", "sample"}));
  // The prompt's tokens are run two at a time; its last chunk gives the first of the four tokens.
  const std::size_t chunks = zones.named("prefill").size();
  EXPECT_GE(chunks, 2u);
  EXPECT_EQ(zones.named("decode").size(), 3u);
  EXPECT_EQ(zones.named("forward").size(), chunks + 3);
  EXPECT_EQ(zones.named("layer").size(), 2 * (chunks + 3));
  EXPECT_EQ(zones.named("sample").size(), 4u);
  const Zone product = zones.named("gemm").at(0);  // q, k and v of the first layer
  EXPECT_EQ(product.args, (Json{{"rows", 2},
                                {"outputs", 64 + 32 + 32},
                                {"depth", 32},
                                {"weight_bytes", (64 + 32 + 32) * 32 * 4}}));
  const Zone attention = zones.named("attention").back();
  EXPECT_EQ(attention.args["heads"], 4);
  EXPECT_EQ(attention.args["positions"], zones.named("decode").back().args["positions"].get<int>());
}

TEST_F(Trace, eval_and_compress_show_their_windows_and_passes) {
  write_text_file(path("text.txt"), "abc def ghi jkl mno pqr stu vwx yz");
  const Zones eval = trace({"eval", model_, "--baseline", model_, "--data", path("text.txt")});
  EXPECT_EQ(eval.root().name, "eval");
  EXPECT_THAT(eval.names(),
              IsSupersetOf({"open model", "tokenize", "window", "read", "gemm", "compare_tokens"}));
  const Zones compress = trace({"compress", model_, "-o", path("small"), "--quantize", "int8:row"});
  EXPECT_EQ(compress.root().name, "compress");
  EXPECT_THAT(compress.names(),
              IsSupersetOf({"hash original", "pass", "quantize tensor", "time products", "sample",
                            "measure quality", "read", "write model"}));
  EXPECT_EQ(compress.named("pass").at(0).args["name"], "quantize int8:row rtn");
  for (const Zone& tensor : compress.named("quantize tensor")) {
    EXPECT_EQ(tensor.args["bytes"],
              tensor.args["rows"].get<Index>() * tensor.args["cols"].get<Index>() * 4)
        << tensor.args["tensor"];
  }
}

TEST_F(Trace, bench_shows_every_sample_of_every_contestant) {
  const Zones zones =
      trace({"bench", "llm", "--model", model_, "--pp", "4", "--tg", "3", "--repeat", "2"});
  EXPECT_EQ(zones.root().name, "bench llm");
  EXPECT_EQ(zones.named("case").size(), 2u);
  std::map<std::string, int> samples;
  for (const Zone& zone : zones.named("sample")) {
    // The runtime's zones of that name, where it draws a token, have no contestant.
    if (zone.args.contains("contestant")) {
      ++samples[zone.args["contestant"].get<std::string>()];
    }
  }
  EXPECT_EQ(samples["hone"], 2 * (2 + 2)) << "two rounds to warm up, two that count, two cases";
  EXPECT_THAT(zones.names(), IsSupersetOf({"prefill", "decode", "prepare sample"}));
}

TEST_F(Trace, train_shows_the_parts_of_a_step) {
  if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 3 == 0 ? "the cat sat.\n" : "a dog ran.\n";
  write_text_file(path("text.txt"), text);
  Arguments train{"train", "lm", "--out", path("run"), "--data", path("text.txt")};
  for (const char* key :
       {"data.tokenizer=byte", "model.hidden_size=16", "model.heads=2", "model.layers=3",
        "model.context=16", "trainer.steps=5", "trainer.accumulation_steps=2",
        "trainer.validate_every=2", "amp.precision=fp32"}) {
    train = train + Arguments{"--set", key};
  }
  const Zones zones = trace(train);
  EXPECT_EQ(zones.root().name, "train lm");
  EXPECT_THAT(
      zones.names(),
      IsSupersetOf({"load data", "train step", "data", "forward", "backward", "optimizer step",
                    "multi_tensor step", "validation", "checkpoint", "export model", "layer",
                    "attention", "attention backward", "rms_norm", "cross_entropy", "matmul"}));
  EXPECT_EQ(zones.named("train step").size(), 5u);
  EXPECT_EQ(zones.named("data").size(), 10u);
  EXPECT_EQ(zones.named("backward").size(), 10u);
  EXPECT_EQ(zones.named("optimizer step").size(), 5u);
  EXPECT_EQ(zones.named("validation").size(), 3u) << "after steps 2 and 4, and at the end";
  for (const Zone& product : zones.named("matmul")) {
    EXPECT_EQ(product.args.size(), 4u);
    EXPECT_GT(product.args["bytes"].get<Index>(), 0);
  }
}

TEST_F(Trace, a_file_that_cannot_be_written_is_refused_before_the_work_begins) {
  for (const std::string& file :
       {path("absent/t.json"), folder_.path().string(), std::string("/proc/t.json")}) {
    expect_refusal(
        {"compress", model_, "-o", path("small"), "--quantize", "int8:row", "--trace", file}, 1);
    EXPECT_FALSE(fs::exists(path("small")));
    expect_refusal({"generate", model_, "-p", "a", "--trace", file}, 1);
  }
  expect_refusal({"generate", model_, "-p", "a", "--trace", ""}, 2);
}

TEST_F(Trace, is_whole_when_the_command_fails_or_is_interrupted) {
  write_text_file(path("short.txt"), "");
  EXPECT_EQ(trace({"eval", model_, "--data", path("short.txt")}, 3).root().name, "eval");
  model_io::Architecture a = tiny_architecture();
  a.context = 1 << 17;
  const auto tokenizer = text::make_tokenizer(tiny_sentencepiece(48));
  write_hugging_face(path("long"), TinyModel(a).source(tokenizer.get()));
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += static_cast<char>('a' + i % 26);
  write_text_file(path("text.txt"), text);
  const Arguments longs[] = {
      {"generate", path("long"), "-p", "a", "-n", "130000", "--ignore-eos"},
      {"eval", path("long"), "--window", "16", "--data", path("text.txt")},
      {"bench", "llm", "--model", path("long"), "--pp", "16", "--tg", "16", "--repeat", "100000"}};
  for (const Arguments& arguments : longs) {
    const std::string file = path(arguments[0]) + ".json";
    std::size_t products = 0;
    for (int wait_ms = 300; products == 0 && wait_ms < 3000; wait_ms *= 3) {  // into the work
      Program program(hone_argv(arguments + Arguments{"--trace", file}));
      ASSERT_TRUE(wait_until([&] { return has_temporary() || program.has_ended(); }));
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
      program.send(SIGINT);
      const ProgramResult result = program.wait();
      EXPECT_EQ(result.status, 130) << arguments[0] << result.err;
      const Zones zones(file);
      EXPECT_TRUE(zones.root().name.starts_with(arguments[0]));
      products = zones.named("gemm").size();
    }
    EXPECT_GT(products, 0u) << arguments[0];
  }
  EXPECT_FALSE(has_temporary());
}

TEST_F(Trace, can_be_asked_for_by_the_environment) {
  const std::string file = path("t.json");
  Program program(hone_argv({"generate", model_, "-p", "a", "-n", "1"}), {"HONE_TRACE=" + file});
  EXPECT_EQ(program.wait().status, 0);
  EXPECT_EQ(Zones(file).root().name, "generate");
}

}  // namespace
}  // namespace hone::test
