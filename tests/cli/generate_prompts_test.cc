// SPDX-License-Identifier: Apache-2.0
// `hone generate --prompts`: what is on disk after it ends, is stopped, killed or continued.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"
#include "tests/model_io/tiny_gguf.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class GeneratePrompts : public Cli {
 protected:
  void SetUp() override {
    command_ = {
        "generate", write_tiny_model(), "--prompts", path("p.jsonl"), "--max-sequences", "3", "-n",
        "12",       "--seed",           "5"};
    write_prompts(20);
  }
  void write_prompts(int count, int tokens = 12) const {
    std::string prompts;
    for (int i = 0; i < count; ++i) {
      prompts += concat("{\"prompt\": \"", std::string(static_cast<std::size_t>(1 + i % 5), 'b'),
                        "\", \"seed\": ", i, ", \"max_tokens\": ", tokens + i % 7, "}\n");
    }
    write_text_file(path("p.jsonl"), prompts);
  }
  Arguments to(const std::string& name) const {
    return command_ + Arguments{"--output", path(name)};
  }
  // Results without their times.
  static std::vector<Json> results(const std::string& text) {
    std::vector<Json> all;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      EXPECT_NE(end, std::string::npos) << "a line that is not complete";
      Json one = parse_json(text.substr(at, end - at), "result");
      one.erase("timings");
      all.push_back(std::move(one));
      at = end + 1;
    }
    return all;
  }
  std::vector<Json> results_of(const std::string& name) const {
    return results(read_text_file(path(name)));
  }
  bool exists(const std::string& name) const { return fs::exists(path(name)); }

  Arguments command_;
};

TEST_F(GeneratePrompts, results_go_to_stdout_or_to_a_file_with_a_summary_as_json) {
  const ProgramResult streamed = run_hone(command_);
  EXPECT_EQ(streamed.status, 0) << streamed.err;
  const Json summary = json_of(to("out.jsonl"));
  EXPECT_EQ(summary["prompts"], 20);
  EXPECT_EQ(summary["failed"], 0);
  EXPECT_EQ(summary["interrupted"], false);
  EXPECT_GT(summary["tokens_per_s"].get<double>(), 0);
  const auto lines = results_of("out.jsonl");
  ASSERT_EQ(lines.size(), 20u);
  EXPECT_EQ(lines, results(streamed.out));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(lines[static_cast<std::size_t>(i)]["id"], i + 1);
  EXPECT_FALSE(exists("out.jsonl.partial"));
  expect_refusal(command_ + Arguments{"--json"}, 2);
  expect_refusal({"generate", command_[1], "-p", "a", "--output", path("x")}, 2);
  expect_refusal(command_ + Arguments{"--resume"}, 2);
  expect_refusal(command_ + Arguments{"-p", "a"}, 2);
}

TEST_F(GeneratePrompts, the_exit_status_tells_whether_lines_failed) {
  write_text_file(path("p.jsonl"), "{\"prompt\": \"a\"}\nnonsense\n");
  const ProgramResult some = run_hone(to("some.jsonl"));
  EXPECT_EQ(some.status, 1) << some.err;
  EXPECT_EQ(results_of("some.jsonl").size(), 2u);
  EXPECT_THAT(results_of("some.jsonl")[1]["error"]["message"].get<std::string>(),
              HasSubstr("p.jsonl, line 2"));
  write_text_file(path("p.jsonl"), "nonsense\n");
  const ProgramResult all = run_hone(to("all.jsonl"));
  EXPECT_EQ(all.status, 3);
  EXPECT_THAT(all.err, HasSubstr("p.jsonl, line 1"));
  EXPECT_EQ(results_of("all.jsonl").size(), 1u);
  write_text_file(path("p.jsonl"), "");
  expect_refusal(to("none.jsonl"), 2);
  EXPECT_FALSE(exists("none.jsonl") || exists("none.jsonl.partial"));
}

TEST_F(GeneratePrompts, no_file_that_is_there_is_changed) {
  write_text_file(path("mine"), "mine");
  write_text_file(path("his.partial"), "his, without a newline");
  write_text_file(path("results.partial"), "{\"id\":1}\n{\"mine\"");
  for (const auto& arguments :
       {to("mine"), to("mine") + Arguments{"--resume"}, to("his"), to("results")}) {
    expect_refusal(arguments, 2);
  }
  expect_refusal(to("his") + Arguments{"--resume"}, 3);
  expect_refusal(to("results") + Arguments{"--resume"}, 3);
  EXPECT_EQ(read_text_file(path("mine")), "mine");
  EXPECT_EQ(read_text_file(path("his.partial")), "his, without a newline");
  EXPECT_EQ(read_text_file(path("results.partial")), "{\"id\":1}\n{\"mine\"");
  fs::create_symlink(path("nowhere"), path("link"));
  expect_refusal(to("link"), 2);
}

TEST_F(GeneratePrompts, resume_continues_after_the_last_complete_line_wherever_it_was_cut) {
  ASSERT_EQ(run_hone(to("whole")).status, 0);
  const std::string whole = read_text_file(path("whole"));
  const auto expected = results_of("whole");
  for (const double part : {0.0, 0.001, 0.3, 0.5, 0.51, 0.999, 1.0}) {
    const auto size = static_cast<std::size_t>(part * static_cast<double>(whole.size()));
    write_text_file(path("out.partial"), whole.substr(0, size));
    const ProgramResult result = run_hone(to("out") + Arguments{"--resume"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(results_of("out"), expected) << "cut at " << size;
    EXPECT_FALSE(exists("out.partial"));
    fs::remove(path("out"));
  }
  EXPECT_EQ(run_hone(to("out") + Arguments{"--resume"}).status, 0) << "nothing to continue";
  EXPECT_EQ(results_of("out"), expected);
}

TEST_F(GeneratePrompts, options_that_may_be_repeated_take_one_value_each) {
  const ProgramResult result =
      run_hone({"generate", "--stop", "zz", "--stop", "yy", "--logit-bias", "3:-1", path("hf"),
                "--prompts", path("p.jsonl"), "-n", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(GeneratePrompts, resume_refuses_results_of_other_prompts_or_options) {
  ASSERT_EQ(run_hone(to("whole")).status, 0);
  const std::string whole = read_text_file(path("whole"));
  const std::string half = whole.substr(0, whole.size() / 2);
  write_text_file(path("out.partial"), half);
  const auto resume = to("out") + Arguments{"--resume"};
  const std::string other = "another prompt, model or option";
  expect_refusal(resume + Arguments{"--temp", "0.5"}, 2, other);
  expect_refusal(resume + Arguments{"--kv", "f32"}, 2, other);
  expect_refusal(resume + Arguments{"--weights", "q8"}, 2, other);
  for (const char* name : {"hf/config.json", "hf/generation_config.json"}) {
    const auto written = fs::last_write_time(path(name));
    fs::last_write_time(path(name), written + std::chrono::seconds(5));
    expect_refusal(resume, 2, other);
    fs::last_write_time(path(name), written);
  }
  const std::string prompts = read_text_file(path("p.jsonl"));
  write_text_file(path("p.jsonl"), "{\"prompt\": \"c\"}\n" + prompts);
  expect_refusal(resume, 2, other);
  write_text_file(path("p.jsonl"), prompts.substr(0, prompts.find('\n') + 1));
  expect_refusal(resume, 2);
  EXPECT_EQ(read_text_file(path("out.partial")), half);
  // What texts do not depend on may change, and so may the lines to come.
  write_text_file(path("p.jsonl"), prompts + "{\"prompt\": \"c\"}\n");
  EXPECT_EQ(run_hone(resume + Arguments{"--threads", "1", "--prefill-chunk", "16"}).status, 0);
  EXPECT_EQ(results_of("out").size(), 21u);
}

TEST_F(GeneratePrompts, resume_notices_that_a_part_of_a_split_model_has_changed) {
  write_parts(folder_.path(), tiny_split());
  write_text_file(path("p.jsonl"), "{\"tokens\": [1, 2]}\n{\"tokens\": [3]}\n");
  command_[1] = part_path(folder_.path(), 0).string();
  const ProgramResult result = run_hone(to("whole"));
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string whole = read_text_file(path("whole"));
  write_text_file(path("out.partial"), whole.substr(0, whole.find('\n') + 1));
  const auto resume = to("out") + Arguments{"--resume"};
  const fs::path part = part_path(folder_.path(), 2);
  const auto written = fs::last_write_time(part);
  fs::last_write_time(part, written + std::chrono::seconds(5));
  expect_refusal(resume, 2, "another prompt, model or option");
  fs::last_write_time(part, written);
  EXPECT_EQ(run_hone(resume).status, 0);
  EXPECT_EQ(results_of("out"), results_of("whole"));
}

TEST_F(GeneratePrompts, resume_notices_another_tokenizer_or_draft) {
  fs::copy(path("hf"), path("draft"), fs::copy_options::recursive);
  fs::copy(path("hf"), path("words"), fs::copy_options::recursive);
  const auto drafts = command_ + Arguments{"--draft",     path("draft"), "--spec-rule", "exact",
                                           "--tokenizer", path("words"), "--temp",      "0"};
  const auto to_file = [&](const char* name) { return drafts + Arguments{"--output", path(name)}; };
  const ProgramResult result = run_hone(to_file("whole"));
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string whole = read_text_file(path("whole"));
  write_text_file(path("out.partial"), whole.substr(0, whole.find('\n') + 1));
  const auto resume = to_file("out") + Arguments{"--resume"};
  for (const char* name :
       {"draft/model.safetensors", "draft/config.json", "words/tokenizer.json"}) {
    const auto written = fs::last_write_time(path(name));
    fs::last_write_time(path(name), written + std::chrono::seconds(5));
    expect_refusal(resume, 2, "another prompt, model or option");
    fs::last_write_time(path(name), written);
  }
  EXPECT_EQ(run_hone(resume).status, 0);
  EXPECT_EQ(results_of("out"), results_of("whole"));
}

TEST_F(GeneratePrompts, the_prompts_are_not_taken_for_results) {
  const std::string prompts = "{\"prompt\": \"b\"}";
  write_text_file(path("out.partial"), prompts);
  command_[3] = path("out.partial");
  expect_refusal(to("out") + Arguments{"--resume"}, 2, "must not be the input");
  EXPECT_EQ(read_text_file(path("out.partial")), prompts);
}

class StoppedPrompts : public GeneratePrompts {
 protected:
  void SetUp() override {
    GeneratePrompts::SetUp();
    model_io::Architecture a = tiny_architecture();
    a.context = 4096;
    const auto tokenizer = text::make_tokenizer(tiny_sentencepiece(48));
    write_hugging_face(path("hf"), TinyModel(a).source(tokenizer.get()));
    write_prompts(200, 300);
    command_ = command_ + Arguments{"--ignore-eos"};
  }
  std::size_t partial_bytes() const {
    std::error_code error;
    const auto size = fs::file_size(path("out.partial"), error);
    return error ? 0 : size;
  }
};

TEST_F(StoppedPrompts, a_signal_keeps_the_results_so_far_and_resume_completes_them) {
  ASSERT_EQ(run_hone(to("whole")).status, 0);
  const auto expected = results_of("whole");
  std::size_t kept = 0;
  for (const int signal : {SIGINT, SIGKILL, SIGTERM}) {
    Program program(hone_argv(to("out") + Arguments{"--resume"}));
    const std::size_t before = partial_bytes();
    ASSERT_TRUE(wait_until([&] { return partial_bytes() > before || program.has_ended(); }));
    expect_refusal(to("out") + Arguments{"--resume"}, 1, "Another process writes");
    expect_refusal(to("out"), 1, "Another process writes");
    program.send(signal);
    const ProgramResult result = program.wait();
    ASSERT_EQ(result.status, 128 + signal) << result.err;
    EXPECT_FALSE(exists("out"));
    if (signal != SIGKILL) {
      EXPECT_THAT(result.err, HasSubstr("--resume continues"));
    }
    const auto lines = results_of("out.partial");
    EXPECT_GT(lines.size(), kept);
    kept = lines.size();
    EXPECT_TRUE(std::equal(lines.begin(), lines.end(), expected.begin()));
  }
  const Json summary = json_of(to("out") + Arguments{"--resume"});
  EXPECT_EQ(summary["continued"], kept);
  EXPECT_EQ(results_of("out"), expected);
}

TEST_F(GeneratePrompts, lines_may_come_from_a_pipe) {
  const ProgramResult result =
      Program({"/bin/sh", "-c",
               concat("cat ", path("p.jsonl"), " | ", HONE_PROGRAM, " generate ", path("hf"),
                      " --prompts /dev/stdin -n 2")})
          .wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(results(result.out).size(), 20u);
}

}  // namespace
}  // namespace hone::test
