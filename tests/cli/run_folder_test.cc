// SPDX-License-Identifier: Apache-2.0
// What the commands of hone-torch make of folders, times and seeds that they cannot use.
#include <gmock/gmock.h>

#include <csignal>

#include "hone/core/file/file_io.h"
#include "hone/core/file/folder_lock.h"
#include "tests/cli/cli_fixture.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class RunFolder : public Cli {
 protected:
  void SetUp() override {
    if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
    std::string text;
    for (int i = 0; i < 400; ++i) text += i % 3 == 0 ? "the cat sat.\n" : "a dog ran.\n";
    write_text_file(path("text.txt"), text);
  }
  Arguments train(const std::string& out, int steps) const {
    Arguments arguments{"train", "lm", "-q", "--out", out, "--threads", "1"};
    for (const std::string& key :
         {"data.path=" + path("text.txt"), std::string("data.tokenizer=byte"),
          std::string("model.hidden_size=16"), std::string("model.heads=2"),
          std::string("model.layers=1"), std::string("model.context=16"),
          "trainer.steps=" + std::to_string(steps)}) {
      arguments = arguments + Arguments{"--set", key};
    }
    return arguments;
  }
};

TEST_F(RunFolder, a_second_run_in_one_folder_is_refused_and_the_first_goes_on) {
  const std::string out = path("run");
  Program first(hone_argv(train(out, 10'000'000)));
  ASSERT_TRUE(wait_until([&] { return fs::exists(out + "/metrics.csv") || first.has_ended(); }));
  expect_refusal(train(out, 10), 1, "has locked this folder");
  expect_refusal(train(out, 10) + Arguments{"--fresh"}, 1, "has locked this folder");
  expect_refusal(train(out, 10) + Arguments{"--resume"}, 1, "has locked this folder");
  first.send(SIGINT);
  const ProgramResult result = first.wait();
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_THAT(expect_refusal(train(out, 10), 2, "holds a run"), HasSubstr("--resume"));
  EXPECT_EQ(run_hone(train(out, 10) + Arguments{"--fresh"}).status, 0);
  EXPECT_TRUE(fs::exists(out + "/model/model.safetensors"));
}

TEST_F(RunFolder, a_run_from_a_model_is_resumed_without_it_as_it_was_started) {
  ASSERT_EQ(run_hone(train(path("base"), 20)).status, 0);
  const std::string out = path("tuned");
  const Arguments start{"train", "lm", "-q",     "--threads",     "1",
                        "--out", out,  "--data", path("text.txt")};
  const auto set = [&](const Arguments& more) { return start + more; };
  expect_refusal(set({"--init", path("none")}), 3, "none");
  expect_refusal(set({"--init", path("base"), "--set", "model.layers=2"}), 2, "model.layers");
  EXPECT_FALSE(fs::exists(out));
  ASSERT_EQ(run_hone(set({"--init", path("base"), "--set", "model.context=8", "--set",
                          "trainer.steps=5"}))
                .status,
            0);
  fs::remove_all(path("base"));
  const Arguments resume{"train", "lm", "-q", "--out", out, "--resume"};
  const ProgramResult again = run_hone(resume);
  EXPECT_EQ(again.status, 0) << again.err;
  expect_refusal(resume + Arguments{"--set", "model.context=9"}, 2, "model.context");
  const ProgramResult text = run_hone({"generate", out + "/model", "-p", "the", "-n", "3"});
  EXPECT_EQ(text.status, 0) << text.err;
}

// GNU's OpenMP tells what it runs with.
TEST_F(RunFolder, threads_of_libtorch_spin_shortly_unless_the_user_says_otherwise) {
  const auto spin_count = [](const Arguments& arguments, const std::vector<std::string>& given) {
    std::vector<std::string> environment{"OMP_DISPLAY_ENV=VERBOSE"};
    environment.insert(environment.end(), given.begin(), given.end());
    Program program(hone_argv(arguments), environment);
    return program.wait().err;
  };
  const Arguments train{"train", "--help"}, bench{"bench", "optim", "--help"};
  EXPECT_THAT(spin_count(train, {}), HasSubstr("GOMP_SPINCOUNT = '1000'"));
  EXPECT_THAT(spin_count(train, {"GOMP_SPINCOUNT=77"}), HasSubstr("GOMP_SPINCOUNT = '77'"));
  for (const std::string& other :
       {spin_count(train, {"OMP_WAIT_POLICY=passive"}), spin_count(bench, {})}) {
    EXPECT_THAT(other, HasSubstr("GOMP_SPINCOUNT"));
    EXPECT_THAT(other, Not(HasSubstr("GOMP_SPINCOUNT = '1000'")));
  }
}

TEST_F(RunFolder, a_signal_ends_a_run_with_its_status_and_the_state_saved) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    const std::string out = path("run" + std::to_string(signal));
    Program run(hone_argv(train(out, 10'000'000)));
    ASSERT_TRUE(wait_until([&] { return fs::exists(out + "/metrics.csv") || run.has_ended(); }));
    run.send(signal);
    const ProgramResult result = run.wait();
    EXPECT_EQ(result.status, 128 + signal) << result.err;
    EXPECT_THAT(result.err, HasSubstr("and its state is saved"));
    EXPECT_FALSE(fs::is_empty(out + "/checkpoints"));
  }
}

TEST_F(RunFolder, a_hangup_that_is_ignored_is_no_interrupt) {
  const std::string out = path("run");
  Program run(Arguments{"/bin/sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""} +
              hone_argv(train(out, 10'000'000)));
  ASSERT_TRUE(wait_until([&] { return fs::exists(out + "/metrics.csv") || run.has_ended(); }));
  run.send(SIGHUP);
  const auto logged = [&] { return fs::file_size(out + "/metrics.csv"); };
  const auto before = logged();
  ASSERT_TRUE(wait_until([&] { return logged() > before || run.has_ended(); }));
  EXPECT_FALSE(run.has_ended());
  run.send(SIGTERM);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
}

TEST_F(RunFolder, a_log_that_was_lost_or_cut_is_no_obstacle) {
  const std::string out = path("run"), csv = out + "/metrics.csv";
  ASSERT_EQ(run_hone(train(out, 30)).status, 0);
  const Arguments resume{"train", "lm", "-q", "--out", out, "--resume"};
  fs::remove(csv);
  for (int time = 0; time < 2; ++time) {
    const ProgramResult result = run_hone(resume);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("no rows of steps 1 to 30"));
    EXPECT_THAT(result.out, Not(HasSubstr("training loss")));
    EXPECT_THAT(result.out, Not(HasSubstr("tokens/s")));
  }
  const ProgramResult json = run_hone(resume + Arguments{"--json"});
  EXPECT_TRUE(parse_json(json.out, "stdout").at("train_loss").is_null());
}

TEST_F(RunFolder, a_run_whose_log_is_removed_exports_its_model) {
  const std::string out = path("run"), csv = out + "/metrics.csv";
  Program run(hone_argv(train(out, 1500)));
  const auto has_rows = [&] {
    return fs::exists(csv) && read_text_file(csv).find("\n1,") != std::string::npos;
  };
  ASSERT_TRUE(wait_until([&] { return has_rows() || run.has_ended(); }));
  fs::remove(csv);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("removed during the run"));
  EXPECT_THAT(result.out, HasSubstr("training loss"));
  EXPECT_TRUE(fs::exists(out + "/model/model.safetensors"));
}

TEST_F(RunFolder, a_run_that_took_no_step_exports_nothing) {
  const Arguments skipping = train(path("run"), 5) + Arguments{"--set", "amp.precision=fp16",
                                                               "--set", "amp.dynamic=false",
                                                               "--set", "amp.init_scale=1e30",
                                                               "--set", "lr.warm_up_steps=1"};
  expect_refusal(skipping, 1, "All 5 steps were skipped");
  EXPECT_FALSE(fs::exists(path("run/model")));
}

TEST_F(RunFolder, skipped_steps_are_reported) {
  const Arguments some = train(path("run"), 30) +
                         Arguments{"--set", "amp.precision=fp16", "--set", "amp.init_scale=1e9"};
  const ProgramResult text = run_hone(some);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("of them skipped"));
  EXPECT_THAT(text.err, HasSubstr("of 30 steps were skipped"));
  EXPECT_GT(json_of(some + Arguments{"--fresh"}).at("skipped_steps"), 0);
  EXPECT_EQ(json_of(train(path("run"), 3) + Arguments{"--fresh"}).at("skipped_steps"), 0);
}

TEST_F(RunFolder, options_that_would_have_no_effect_are_refused) {
  const Arguments good = train(path("new"), 10) + Arguments{"--minutes", "1"};
  for (const char* other : {"--resume", "--find-batch-size", "--memory-report"})
    expect_refusal(good + Arguments{other}, 2);
  expect_refusal({"train", "lm", "--out", path("new"), "--data", ""}, 2);
  expect_refusal({"demo", "--out", path("new"), "--data", ""}, 2);
  EXPECT_FALSE(fs::exists(path("new")));
}

TEST_F(RunFolder, fresh_replaces_all_of_a_run_and_nothing_else) {
  const std::string out = path("run");
  const Arguments logs{"--set", "trainer.metrics=jsonl,tensorboard"};
  ASSERT_EQ(run_hone(train(out, 5) + logs).status, 0);
  write_text_file(out + "/tensorboard/mine", "x");
  write_text_file(out + "/notes", "x");
  const std::string model = read_text_file(out + "/model/model.safetensors");
  // What cannot run replaces nothing.
  expect_refusal(train(out, 5) + Arguments{"--fresh", "--set", "model.context=100000"}, 2);
  EXPECT_TRUE(fs::exists(out + "/metrics.jsonl"));
  EXPECT_EQ(read_text_file(out + "/model/model.safetensors"), model);
  Program next(hone_argv(train(out, 10'000'000) + Arguments{"--fresh"}));
  ASSERT_TRUE(wait_until(
      [&] { return !fs::exists(out + "/checkpoints/step_00000005") || next.has_ended(); }));
  next.send(SIGINT);
  EXPECT_EQ(next.wait().status, 130);
  for (const char* gone : {"/metrics.jsonl", "/tensorboard/events.out.tfevents.0.hone", "/model"})
    EXPECT_FALSE(fs::exists(out + gone)) << gone;
  for (const char* kept : {"/tensorboard/mine", "/notes"}) EXPECT_TRUE(fs::exists(out + kept));
}

TEST_F(RunFolder, a_run_that_ended_before_its_first_checkpoint_blocks_no_other) {
  const std::string out = path("run");
  // Weights and state fit, a step does not.
  const Arguments short_of_memory =
      train(out, 5) + Arguments{"--set", "trainer.max_memory_mb=1", "--set", "model.hidden_size=32",
                                "--set", "model.context=512"};
  const ProgramResult refused = run_hone(short_of_memory);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("enough for a step"));
  EXPECT_TRUE(fs::exists(out + "/metrics.csv"));
  EXPECT_EQ(run_hone(train(out, 5)).status, 0);
  expect_refusal(train(out, 5), 2, "already holds a run");
}

TEST_F(RunFolder, a_warm_up_as_long_as_the_run_is_named) {
  const auto said = [&](const char* schedule, int warm_up_steps) {
    Arguments keys{"--fresh", "--set", std::string("lr.schedule=") + schedule};
    if (warm_up_steps > 0)
      keys = keys + Arguments{"--set", "lr.warm_up_steps=" + std::to_string(warm_up_steps)};
    return run_hone(train(path("run"), 5) + keys).err;
  };
  EXPECT_THAT(said("cosine", 5), HasSubstr("lr.warm_up_steps = 5 is not below trainer.steps = 5"));
  EXPECT_EQ(said("cosine", 4), "");
  EXPECT_EQ(said("one_cycle", 0), "") << "the default is ignored";
}

TEST_F(RunFolder, settings_of_tam_that_start_badly_are_named_once_when_the_run_begins) {
  const Arguments vision{"train",
                         "vision",
                         "-q",
                         "--data",
                         "leaves",
                         "--threads",
                         "1",
                         "--out",
                         path("leaves"),
                         "--set",
                         "data.leaves.classes=2",
                         "--set",
                         "data.leaves.size=32",
                         "--set",
                         "data.leaves.train=4",
                         "--set",
                         "data.leaves.val=2",
                         "--set",
                         "model.name=mlp",
                         "--set",
                         "trainer.micro_batch=8",
                         "--set",
                         "trainer.steps=5"};
  const std::string warning = "the loss may rise first: lower lr.peak or optim.beta2";
  for (const Arguments& run : {train(path("run"), 5), vision}) {
    const Arguments adatamw =
        run + Arguments{"--set", "optim.name=adatamw", "--set", "lr.schedule=constant",
                        "--set", "lr.warm_up_steps=1"};
    EXPECT_EQ(run_hone(adatamw).err, "");
    const Arguments as_adam = adatamw + Arguments{"--set", "lr.peak=0.004"};
    const std::string said = run_hone(as_adam + Arguments{"--fresh"}).err;
    EXPECT_THAT(said, HasSubstr(warning));
    EXPECT_EQ(said.find(warning), said.rfind(warning)) << "once";
    EXPECT_THAT(run_hone(as_adam + Arguments{"--resume"}).err, Not(HasSubstr(warning)));
  }
}

TEST_F(RunFolder, the_largest_batch_of_the_search_is_called_that) {
  const Arguments search = train(path("none"), 5) + Arguments{"--find-batch-size"};
  EXPECT_THAT(run_hone(search).out, HasSubstr("at least 1024 (the search ends there"));
  EXPECT_EQ(json_of(search).at("search_ends_there"), true);
  EXPECT_EQ(json_of(search + Arguments{"--set", "trainer.max_memory_mb=4"}).at("search_ends_there"),
            false);
}

TEST_F(RunFolder, a_run_of_the_other_verb_is_named) {
  const std::string out = path("run");
  ASSERT_EQ(run_hone(train(out, 5)).status, 0);
  const Arguments resume{"train", "vision", "--resume", "--out", out};
  expect_refusal(resume, 2, "expected a run of train vision or paco, got a run of train lm");
}

TEST_F(RunFolder, resuming_without_a_configuration_or_a_whole_checkpoint_says_so) {
  const std::string out = path("run"), toml = out + "/train.toml";
  ASSERT_EQ(run_hone(train(out, 3)).status, 0);
  const std::string recorded = read_text_file(toml);
  fs::remove(toml);
  expect_refusal({"train", "lm", "--out", out, "--resume"}, 3, "train.toml");
  write_text_file(toml, recorded);
  for (const auto& entry : fs::recursive_directory_iterator(out + "/checkpoints")) {
    if (entry.path().filename() == "manifest.json") write_text_file(entry.path(), "{");
  }
  const ProgramResult result = run_hone({"train", "lm", "-q", "--out", out, "--resume"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("--fresh starts again"));
}

TEST_F(RunFolder, a_finished_run_is_extended_where_its_schedule_allows_it) {
  const std::string out = path("run");
  const Arguments constant{"--set", "lr.schedule=constant"};
  ASSERT_EQ(run_hone(train(out, 3) + constant).status, 0);
  const Arguments longer{"train", "lm", "-q", "--out", out, "--resume", "--set", "trainer.steps=5"};
  EXPECT_EQ(json_of(longer).at("steps"), 5);
  EXPECT_THAT(read_text_file(out + "/train.toml"), HasSubstr("\nsteps = 5\n"));
  ASSERT_EQ(run_hone(train(out, 60) + Arguments{"--fresh"}).status, 0);
  const Arguments more{"--resume", "--set", "trainer.steps=70", "--threads", "1"};
  expect_refusal(Arguments{"train", "lm", "-q", "--out", out} + more, 2);
}

TEST_F(RunFolder, a_setting_that_the_rule_ignores_is_refused_by_name_and_a_recorded_one_is_not) {
  const std::string out = path("run"), toml = out + "/train.toml";
  const Arguments ignored{"--set", "optim.nesterov=true"};
  expect_refusal(train(out, 3) + ignored, 2, "[optim.nesterov] This key has no effect");
  EXPECT_FALSE(fs::exists(out));
  ASSERT_EQ(run_hone(train(out, 3)).status, 0);
  const Arguments resume{"train", "lm", "-q", "--out", out, "--resume"};
  EXPECT_EQ(run_hone(resume).status, 0);
  EXPECT_EQ(run_hone(resume + Arguments{"--config", toml}).status, 0);
  expect_refusal(resume + ignored, 2);
  // As it was written before: every key, whether it had an effect or not.
  std::string all = read_text_file(toml);
  for (std::size_t at; (at = all.find("# ")) != std::string::npos;) all.erase(at, 2);
  for (std::size_t at; (at = all.find("  (no effect")) != std::string::npos;)
    all.erase(at, all.find('\n', at) - at);
  EXPECT_THAT(all, HasSubstr("\nnesterov = false\n"));
  write_text_file(toml, all);
  EXPECT_EQ(run_hone(resume).status, 0);
}

TEST_F(RunFolder, what_cannot_run_leaves_no_folder) {
  const std::string out = path("new");
  const Arguments good = train(out, 10);
  for (const char* minutes : {"nan", "-1", "0", "inf", "1e-9", "1e300", "soon"})
    expect_refusal(good + Arguments{"--minutes", minutes}, 2, "minutes");
  for (const char* seed : {"-1", "1e3", "99999999999999999999"})
    expect_refusal(good + Arguments{"--seed", seed}, 2, "--seed: expected");
  expect_refusal(good + Arguments{"--resume", "--fresh"}, 2, "--fresh");
  expect_refusal(good + Arguments{"--set", "steps=3"}, 2, "steps");
  expect_refusal(good + Arguments{"--resume"}, 3);
  fs::create_directory(path("old"));  // is there before, and stays
  expect_refusal(train(path("old"), 10) + Arguments{"--resume"}, 3);
  EXPECT_TRUE(fs::is_empty(path("old")));
  write_text_file(path("latin.txt"), "caf\xe9 au lait, please\n");
  write_text_file(path("empty.txt"), "");
  for (const char* data : {"none", "latin.txt", "empty.txt"}) {
    expect_refusal(good + Arguments{"--set", "data.path=" + path(data)}, 3);
    expect_refusal({"train", "lm", "--out", out, "--data", path(data)}, 3);
    expect_refusal({"demo", "--out", out, "--data", path(data)}, 3);
  }
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(RunFolder, a_device_that_is_not_there_ends_with_4_and_an_unknown_one_with_2) {
  const std::string out = path("new");
  const auto on = [&](const char* device) {
    return train(out, 3) + Arguments{"--set", std::string("trainer.device=") + device};
  };
  expect_refusal(on("cuda:63"), 4);
  if (!fs::exists("/dev/nvidiactl")) expect_refusal(on("cuda"), 4);
  expect_refusal(on("cuda:63") + Arguments{"--find-batch-size"}, 4);
  expect_refusal(on("gpu"), 2, "expected cpu, cuda or cuda:N, got gpu");
  EXPECT_FALSE(fs::exists(out));
  ASSERT_EQ(run_hone(train(out, 3)).status, 0);
  expect_refusal(on("cuda:63") + Arguments{"--resume"}, 4, "a CUDA device");
  EXPECT_EQ(run_hone(on("cpu") + Arguments{"--resume"}).status, 0);
}

TEST_F(RunFolder, an_unknown_key_ends_with_2_names_the_nearest_and_leaves_nothing) {
  const std::string out = path("new"), toml = path("t.toml");
  write_text_file(toml, "[trainer]\ngradient_checkpointing = true\nrecompute_evry = 1\n");
  const std::vector<std::pair<Arguments, const char*>> cases{
      {{"--set", "trainer.tensor_cores=true"}, "trainer.tensor_cores"},
      {{"--set", "trainer.recompute_evry=1"}, "trainer.recompute_every"},
      {{"--config", toml}, "trainer.gradient_checkpointing"}};
  for (const auto& [setting, named] : cases) {
    expect_refusal(train(out, 3) + setting, 2, named);
  }
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(RunFolder, a_demo_leaves_a_folder_alone_in_which_another_works) {
  const FolderLock other(path("demo"));
  expect_refusal({"demo", "--quick", "--out", path("demo")}, 1, "has locked this folder");
  EXPECT_FALSE(fs::exists(path("demo/train")));
}

TEST_F(RunFolder, train_takes_the_seed_and_set_wins_over_it) {
  const auto recorded = [&](const char* name, const Arguments& more) {
    const std::string out = path(name);
    EXPECT_EQ(run_hone(train(out, 1) + more).status, 0);
    const std::string toml = read_text_file(out + "/train.toml");
    const std::size_t at = toml.find("seed = ") + 7;
    return toml.substr(at, toml.find('\n', at) - at);
  };
  EXPECT_EQ(recorded("a", {"--seed", "9223372036854775807"}), "9223372036854775807");
  EXPECT_EQ(recorded("b", {"--seed", "5", "--set", "trainer.seed=7"}), "7");
  write_text_file(path("seven.toml"), "[trainer]\nseed = 7\n");
  EXPECT_EQ(recorded("c", {"--config", path("seven.toml")}), "7");
  EXPECT_EQ(recorded("d", {"--config", path("seven.toml"), "--seed", "0"}), "0");
}

TEST_F(RunFolder, a_model_folder_with_other_files_is_refused_before_the_first_step) {
  fs::create_directories(path("run/model"));
  write_text_file(path("run/model/mine"), "x");
  for (const Arguments& more : {Arguments{}, Arguments{"--fresh"}}) {
    expect_refusal(Arguments{"train", "lm", "--out", path("run")} + more, 2);
  }
  EXPECT_FALSE(fs::exists(path("run/metrics.csv")));
}

TEST_F(RunFolder, a_text_that_the_run_would_replace_is_spared) {
  fs::create_directories(path("run/model"));
  write_text_file(path("run/model/config.json"), "{}");
  for (const char* part : {"run/model/merges.txt", "run/metrics.csv"}) {
    write_text_file(path(part), "a text");
    expect_refusal({"train", "lm", "--fresh", "--out", path("run"), "--data", path(part)}, 2);
    EXPECT_EQ(read_text_file(path(part)), "a text");
  }
}

TEST_F(RunFolder, toml_whose_keys_have_no_end_is_refused) {
  std::string key = "a";
  for (int i = 0; i < 50'000; ++i) key += ".a";
  const std::string file = path("d.toml");
  for (const std::string& text :
       {key + "=1", "[" + key + "]", "[[" + key + "]]", "a={" + key + "=1}"}) {
    write_text_file(file, text);
    expect_refusal({"train", "lm", "--config", file, "--out", path("run")}, 2);
  }
}

}  // namespace
}  // namespace hone::test
