// SPDX-License-Identifier: Apache-2.0
// Exit statuses and the one sentence that goes with each.
#include <gmock/gmock.h>
#include <unistd.h>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/machine/cpu_info.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

TEST_F(Cli, an_unknown_command_is_answered_with_each_known_one_once) {
  const std::string error = expect_refusal({"zebra"}, 2, "known");
  for (const std::string name : {" compress", " train", " doctor"}) {
    const std::size_t at = error.find(name);
    ASSERT_NE(at, error.npos) << error;
    EXPECT_EQ(error.find(name, at + 1), error.npos) << error;
  }
}

TEST_F(Cli, version_and_help_go_to_stdout) {
  const ProgramResult version = run_hone({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.err, "");
  EXPECT_TRUE(version.out.starts_with("hone ")) << version.out;
  EXPECT_THAT(version.out, HasSubstr("commit"));
  for (const char* verb : {"", "inspect", "convert", "tokenize", "generate", "eval", "doctor"}) {
    const ProgramResult help = run_hone(*verb ? Arguments{verb, "--help"} : Arguments{"--help"});
    EXPECT_EQ(help.status, 0) << verb;
    EXPECT_EQ(help.err, "") << verb;
    EXPECT_THAT(help.out, HasSubstr(*verb ? "--json" : "generate")) << verb;
  }
}

TEST_F(Cli, usage_errors_end_with_2) {
  const std::string model = write_tiny_model();
  const Arguments generate{"generate", model};
  const std::vector<Arguments> cases{
      {},
      {"bogus"},
      {"inspect"},
      {"inspect", model, "--bogus"},
      {"inspect", model, "more"},
      {"convert", model},
      {"convert", model, path("x.gguf"), "--dtype", "q9"},
      {"convert", model, path("x.gguf"), "--to", "onnx"},
      {"convert", model, path("x.bin"), "--dtype", "q8_0"},
      {"eval", model},
      {"doctor", "--threads", "0"},
      {"doctor", "--threads", "many"},
      {"doctor", "--force-isa", "mmx"},
      generate,
      generate + Arguments{"-p", "a", "-f", model + "/config.json"},
      generate + Arguments{"-p", "a", "-n", "0"},
      generate + Arguments{"-p", "a", "-n", "-3"},
      generate + Arguments{"-p", "a", "-n", "three"},
      generate + Arguments{"-p", "a", "--temp", "nan"},
      generate + Arguments{"-p", "a", "--temp", "-1"},
      generate + Arguments{"-p", "a", "--top-p", "2"},
      generate + Arguments{"-p", "a", "--top-p", "nan"},
      generate + Arguments{"-p", "a", "--min-p", "-1"},
      generate + Arguments{"-p", "a", "--top-k", "-1"},
      generate + Arguments{"-p", "a", "--kv", "f64"},
      generate + Arguments{"-p", "a", "--logit-bias", "5"},
      generate + Arguments{"-p", "a", "--logit-bias", "48:1"},
      generate + Arguments{"-p", "a", "--ctx", "-1"},
      generate + Arguments{"-p", "a", "--prefill-chunk", "0"},
      generate + Arguments{"-p", "a", "--stop", ""},
  };
  for (const Arguments& arguments : cases) expect_refusal(arguments, 2);
  EXPECT_FALSE(fs::exists(path("x.gguf")));
  EXPECT_FALSE(fs::exists(path("x.bin")));
}

TEST_F(Cli, missing_and_odd_inputs_end_with_3_or_4) {
  const std::string model = write_tiny_model(), none = path("none");
  for (const char* name : {"none", "none.gguf", "none.bin", "none.safetensors", ""}) {
    const std::string file = *name ? path(name) : "";
    expect_refusal({"inspect", file}, 3);
    expect_refusal({"generate", file, "-p", "a"}, 3);
    expect_refusal({"convert", file, path("out.gguf")}, 3);
    expect_refusal({"eval", file, "--data", model + "/config.json"}, 3);
  }
  fs::create_directory(path("empty"));
  for (const std::string& file : {path("empty"), model + "/tokenizer.json/x"})
    expect_refusal({"inspect", file}, 3);
  expect_refusal({"tokenize", none, "-p", "a"}, 3);
  expect_refusal({"eval", model, "--data", none}, 3);
  expect_refusal({"eval", model, "--baseline", none, "--data", model + "/config.json"}, 3);
  expect_refusal({"generate", model, "-f", none}, 3);
  expect_refusal({"generate", model, "--prompt-ids", none}, 3);
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/urandom"}) {
    expect_refusal({"generate", model, "--prompt-ids", device}, 3);
  }
  expect_refusal({"generate", model, "-f", "/dev/zero"}, 3);
  expect_refusal({"generate", model, "--tokenizer", none, "-p", "a"}, 3);
  write_text_file(path("x.pt"), "hello");
  expect_refusal({"inspect", path("x.pt")}, 4);
  expect_refusal({"generate", path("x.pt"), "-p", "a"}, 4);
}

TEST_F(Cli, outputs_that_cannot_be_written_end_with_1) {
  const std::string model = write_tiny_model();
  expect_refusal({"convert", model, path("absent/x.gguf")}, 1);
  expect_refusal({"convert", model, "/proc/x.gguf"}, 1);
  expect_refusal({"convert", model, "/proc/x"}, 1);
}

TEST_F(Cli, a_file_beyond_the_shells_limit_ends_with_1_and_leaves_nothing) {
  const std::string model = write_tiny_model(), out = path("x.gguf");
  const ProgramResult result =
      Program(Arguments{"/bin/sh", "-c", "ulimit -f 1; exec \"$0\" \"$@\""} +
              hone_argv({"convert", model, out}))
          .wait();
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("File too large"));
  EXPECT_FALSE(fs::exists(out));
}

class Stdout : public Cli {
 protected:
  // Runs every kind of command with its stdout redirected by the shell.
  void expect_all(const std::string& redirection, int status, const std::string& error) const {
    const std::string model = write_tiny_model(), command = "exec \"$0\" \"$@\" " + redirection;
    const std::vector<Arguments> verbs{{"--help"},
                                       {"--version"},
                                       {"inspect", "--help"},
                                       {"inspect", model, "-q"},
                                       {"inspect", model, "--json"},
                                       {"tokenize", model, "-p", "a", "--json"},
                                       {"generate", model, "-q", "-p", "a", "-n", "40"},
                                       {"generate", model, "-q", "-p", "a", "-n", "40", "--json"}};
    for (const Arguments& verb : verbs) {
      const ProgramResult result =
          Program(Arguments{"/bin/sh", "-c", command} + hone_argv(verb)).wait();
      EXPECT_EQ(result.status, status) << verb[0] << result.err;
      EXPECT_THAT(result.err, error.empty() ? HasSubstr("") : HasSubstr(error)) << verb[0];
      EXPECT_EQ(result.err.empty(), error.empty()) << verb[0] << result.err;
    }
  }
};

TEST_F(Stdout, that_cannot_be_written_ends_with_1) {
  expect_all("> /dev/full", 1, "hone: [stdout] Could not write the result");
}

TEST_F(Stdout, that_is_full_ends_a_batch_with_the_reason) {
  const std::string model = write_tiny_model();
  write_text_file(path("lines.jsonl"), "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n");
  const ProgramResult result =
      Program(Arguments{"/bin/sh", "-c", "exec \"$0\" \"$@\" > /dev/full"} +
              hone_argv({"generate", model, "-q", "--prompts", path("lines.jsonl")}))
          .wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("Could not write the result: No space left on device"));
}

TEST(WholeNumbers, beyond_64_bits_are_refused_by_the_limit_that_they_exceed) {
  const ProgramResult result = run_hone({"generate", "m", "-p", "a", "-n", "99999999999999999999"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("expected a whole number from 1 to 9223372036854775807, got "
                                    "99999999999999999999"));
}

TEST_F(Stdout, that_nobody_reads_ends_quietly_as_by_sigpipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  expect_all(">&" + std::to_string(ends[1]), 141, "");
  ::close(ends[1]);
}

TEST_F(Cli, convert_never_overwrites_its_input_or_foreign_files) {
  const std::string model = write_tiny_model(), gguf = path("m.gguf");
  ASSERT_EQ(run_hone({"convert", model, gguf}).status, 0);
  const std::string before = read_text_file(gguf);
  fs::create_symlink(gguf, path("link.gguf"));
  fs::create_directory(path("photos"));
  write_text_file(path("photos/cat.txt"), "cat");
  expect_refusal({"convert", model, model}, 2);
  expect_refusal({"convert", gguf, gguf}, 2);
  expect_refusal({"convert", gguf, path("./m.gguf")}, 2);
  expect_refusal({"convert", gguf, path("link.gguf")}, 2);
  expect_refusal({"convert", gguf, path("photos")}, 2);
  expect_refusal({"convert", gguf, path("photos/cat.txt")}, 2);
  // By way of folders that are not there.
  fs::create_symlink("new/../hf", path("dangling"));
  expect_refusal({"convert", model, path("new/../hf")}, 2, "must not be the input");
  expect_refusal({"convert", model, path("dangling")}, 2, "must not be the input");
  expect_refusal({"convert", gguf, path("new/../photos")}, 2, "so it is not replaced");
  expect_refusal({"convert", gguf, path("new/../m.gguf")}, 2, "must not be the input");
  expect_refusal({"convert", model, path("photos"), "--to", "gguf"}, 2);
  EXPECT_EQ(read_text_file(gguf), before);
  EXPECT_EQ(read_text_file(path("photos/cat.txt")), "cat");
  EXPECT_FALSE(fs::exists(path("new")));
  // What a killed run left is removed beside what a link or a slash at the end lead to.
  fs::create_directories(path("real/left.hone-tmp-99999999-0"));
  fs::create_symlink("real/new", path("linked"));
  ASSERT_EQ(run_hone({"convert", model, path("linked")}).status, 0);
  EXPECT_FALSE(fs::exists(path("real/left.hone-tmp-99999999-0")));
}

TEST_F(Cli, convert_spares_the_parts_of_its_input_and_what_lies_in_a_model_folder) {
  const std::string model = write_tiny_model(), gguf = path("m.gguf"), other = path("other");
  ASSERT_EQ(run_hone({"convert", model, gguf}).status, 0);
  ASSERT_EQ(run_hone({"convert", model, other}).status, 0);
  fs::create_directory(path("lc"));
  model_io::Architecture architecture = tiny_architecture();
  architecture.head_dim = architecture.rope.rotary_dims = 8;  // llama2.c: hidden / heads
  const auto pieces = text::make_tokenizer(tiny_sentencepiece(48));
  const TinyModel tiny(architecture);
  write_hugging_face(path("lc_hf"), tiny.source(pieces.get()));
  ASSERT_EQ(run_hone({"convert", path("lc_hf"), path("lc/m.bin")}).status, 0);
  const std::string foreign = path("lc/data.bin");
  write_text_file(foreign, "no model");
  fs::create_symlink(model + "/model.safetensors", path("l.gguf"));
  for (const char* part : {"model.safetensors", "config.json", "tokenizer.json"}) {
    expect_refusal({"convert", model, model + "/" + part, "--to", "gguf"}, 2,
                   "must not lie within the input");
  }
  expect_refusal({"convert", model, path("l.gguf")}, 2, "must not lie within the input");
  expect_refusal({"convert", path("lc/m.bin"), foreign}, 2);
  expect_refusal({"convert", gguf, path("lc/new.bin"), "--tokenizer", path("lc/new.bin")}, 3);
  expect_refusal({"convert", path("lc/m.bin"), other, "--tokenizer", other + "/tokenizer.json"}, 2);
  for (const char* name : {"notes.md", "in.gguf"}) {
    fs::copy_file(gguf, fs::path(other) / name);
    expect_refusal({"convert", other + "/" + name, other}, 2, "must not contain the input");
    expect_refusal({"convert", gguf, other}, 2, name);
    fs::remove(fs::path(other) / name);
  }
  EXPECT_EQ(run_hone({"convert", gguf, other}).status, 0);
  EXPECT_EQ(run_hone({"convert", model, gguf}).status, 0) << "a model may be replaced";
}

// The option comes before HONE_FORCE_ISA, which may limit this run of the tests.
TEST_F(Cli, instruction_sets_are_forced_or_refused) {
  const Json machine = parse_json(
      Program(hone_argv({"doctor", "--json"}), {"HONE_FORCE_ISA="}).wait().out, "stdout");
  int refused = 0;
  for (const char* name :
       {"scalar", "sse4", "avx2", "avxvnni", "avx512", "avx512vnni", "amx", "neon", "sve"}) {
    const bool here =
        std::ranges::any_of(machine["isa"], [&](const Json& isa) { return isa == name; });
    if (here) {
      EXPECT_EQ(run_hone({"doctor", "--force-isa", name}).status, 0) << name;
    } else {
      expect_refusal({"doctor", "--force-isa", name}, 4);
      ++refused;
    }
  }
  EXPECT_GE(refused, 2);  // no machine has both x86 and Arm sets
}

// A file that is not there shows that everything before it was accepted.
TEST_F(Cli, options_precede_variables) {
  const auto run = [](const Arguments& arguments, const std::vector<std::string>& variables) {
    return Program(hone_argv(arguments), variables).wait();
  };
  const Arguments inspect{"inspect", path("none.gguf")},
      convert{"convert", path("none.gguf"), path("x")};
  for (const Arguments& verb : {inspect, convert, Arguments{"generate", path("none"), "-p", "a"}}) {
    const Arguments options{"--threads", "1", "--force-isa", "avx2"};
    for (const char* variable : {"HONE_THREADS=abc", "HONE_THREADS=0", "HONE_FORCE_ISA=bogus"}) {
      EXPECT_EQ(run(verb + options, {variable}).status, 3) << verb[0] << " with " << variable;
      const ProgramResult refused = run(verb, {variable});
      EXPECT_EQ(refused.status, 2) << verb[0] << " with " << variable;
    }
  }
}

TEST_F(Cli, a_kernel_that_does_not_exist_is_refused_by_name) {
  const auto doctor = [](const char* forced) {
    return Program(hone_argv({"doctor"}), {concat("HONE_FORCE_KERNEL=", forced)}).wait();
  };
  EXPECT_EQ(doctor("gemm_q4:plain,multi_tensor:ref").status, 0);
  for (const char* forced : {"gem_q4:plain", "gemm_q4:fast", "gemm_q4"}) {
    const ProgramResult result = doctor(forced);
    EXPECT_EQ(result.status, 2) << forced;
    EXPECT_THAT(result.err, AllOf(HasSubstr("[HONE_FORCE_KERNEL]"), HasSubstr(forced))) << forced;
  }
}

}  // namespace
}  // namespace hone::test
