// SPDX-License-Identifier: Apache-2.0
// Runs that are stopped or collide: nothing half-written ever has the output's name.
#include <gmock/gmock.h>

#include <csignal>

#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Interrupted : public Cli {
 protected:
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path()), {}));
  }
  // 70 MB: converting it takes long enough to be caught in the middle.
  std::string write_large_model() const {
    model_io::Architecture a = tiny_architecture();
    a.hidden_size = 512;
    a.heads = a.kv_heads = 8;
    a.head_dim = a.rope.rotary_dims = 64;
    a.intermediate_size = 2048;
    a.layers = 4;
    write_hugging_face(path("hf"), TinyModel(a).source());
    return path("hf");
  }
};

TEST_F(Interrupted, generate_ends_with_the_signals_status_and_keeps_what_was_written) {
  model_io::Architecture a = tiny_architecture();
  a.context = 1 << 17;
  const auto tokenizer = text::make_tokenizer(tiny_sentencepiece(48));
  write_hugging_face(path("hf"), TinyModel(a).source(tokenizer.get()));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Program program(hone_argv({"generate", path("hf"), "-p", "a", "-n", "130000", "--ignore-eos"}));
    ASSERT_TRUE(wait_until([&] { return program.has_output() || program.has_ended(); }));
    program.send(signal);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.status, 128 + signal) << result.err;
    EXPECT_FALSE(result.out.empty());
  }
}

TEST_F(Interrupted, bench_prints_the_rows_that_are_finished) {
  model_io::Architecture a = tiny_architecture();
  a.context = 4096;
  write_hugging_face(path("hf"), TinyModel(a).source());
  const Arguments bench{"bench", "llm",  "--model", path("hf"), "-v",    "--repeat",
                        "2",     "--pp", "4",       "--tg",     "3,3000"};
  Program program(hone_argv(bench));
  ASSERT_TRUE(wait_until([&] { return program.has_told("tg3000") || program.has_ended(); }));
  program.send(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.status, 128 + SIGINT) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("pp4"), HasSubstr("tg3@0"), Not(HasSubstr("tg3000"))));
  Program json(hone_argv(bench + Arguments{"--json"}));
  ASSERT_TRUE(wait_until([&] { return json.has_told("tg3000") || json.has_ended(); }));
  json.send(SIGINT);
  const ProgramResult half = json.wait();
  EXPECT_EQ(half.status, 128 + SIGINT) << half.err;
  EXPECT_THAT(half.out, Not(HasSubstr("pp4"))) << "no half of a document";
}

TEST_F(Interrupted, a_killed_convert_leaves_the_old_output_or_none) {
  const std::string model = write_large_model();
  for (const char* name : {"m.gguf", "folder"}) {
    const std::string out = path(name);
    const std::size_t before = entries();
    {
      Program program(hone_argv({"convert", model, out, "--dtype", "f32"}));
      ASSERT_TRUE(wait_until([&] { return entries() > before || program.has_ended(); }));
      program.send(SIGKILL);
      ASSERT_EQ(program.wait().status, 128 + SIGKILL) << "too fast to be killed";
    }
    EXPECT_FALSE(fs::exists(out));
    ASSERT_EQ(run_hone({"convert", model, out, "--dtype", "bf16"}).status, 0);
    EXPECT_EQ(entries(), before + 1) << "a stale temporary stays";
    const Json old = json_of({"inspect", out});
    Program program(hone_argv({"convert", model, out, "--dtype", "f32"}));
    ASSERT_TRUE(wait_until([&] { return entries() > before + 1 || program.has_ended(); }));
    program.send(SIGKILL);
    ASSERT_EQ(program.wait().status, 128 + SIGKILL) << "too fast to be killed";
    EXPECT_EQ(json_of({"inspect", out}), old);
    ASSERT_EQ(run_hone({"convert", model, out, "--dtype", "f16"}).status, 0);
    EXPECT_EQ(entries(), before + 1) << "a stale temporary stays";
  }
}

TEST_F(Interrupted, two_converts_to_one_output_leave_one_whole_output) {
  const std::string model = write_tiny_model();
  for (const char* name : {"m.gguf", "copy"}) {
    const std::string out = path(name);
    for (int round = 0; round < 10; ++round) {
      fs::remove_all(out);
      Program first(hone_argv({"convert", model, out, "--dtype", "f32"}));
      Program second(hone_argv({"convert", model, out, "--dtype", "f32"}));
      for (Program* program : {&first, &second}) {
        const ProgramResult result = program->wait();
        EXPECT_EQ(result.status, 0) << result.err;
      }
      EXPECT_EQ(run_hone({"generate", out, "-p", "a", "-n", "2"}).status, 0) << name;
    }
  }
  EXPECT_EQ(entries(), 3u) << "a temporary stays";
}

// The pipe of a stop would get the number of a closed stream, and with it what is printed there.
TEST_F(Interrupted, closed_streams_neither_stop_a_run_nor_lose_its_output) {
  const std::string model = write_tiny_model(), out = path("small");
  const auto result = Program({"/bin/sh", "-c",
                               concat("exec '", HONE_PROGRAM, "' compress '", model, "' -o '", out,
                                      "' --quantize int8:row >&- 2>&- <&-")})
                          .wait();
  EXPECT_EQ(result.status, 1) << "the table cannot be printed";
  EXPECT_TRUE(std::filesystem::exists(out + "/model.safetensors"));
}

}  // namespace
}  // namespace hone::test
