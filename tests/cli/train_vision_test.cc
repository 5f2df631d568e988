// SPDX-License-Identifier: Apache-2.0
// The conduct of `hone train vision`: what it refuses, an interrupt, going on.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>

#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "tests/cli/cli_fixture.h"
#include "tests/support/image_files.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TrainVision : public Cli {
 protected:
  void SetUp() override {
    if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
    write_bar_folder(path("data"), 12, 3, 60, 15);
  }
  Arguments train(const std::string& out, int steps) const {
    return {"train",
            "vision",
            "-q",
            "--out",
            out,
            "--threads",
            "1",
            "--data",
            path("data"),
            "--set",
            "model.name=mlp",
            "--set",
            "trainer.micro_batch=60",
            "--set",
            "trainer.steps=" + std::to_string(steps),
            "--set",
            "model.width=8"};
  }
};

TEST_F(TrainVision, an_interrupted_run_goes_on_and_reports_accuracy) {
  const std::string out = path("run");
  Program first(hone_argv(train(out, 10'000'000)));
  ASSERT_TRUE(wait_until([&] { return fs::exists(out + "/metrics.csv") || first.has_ended(); }));
  first.send(SIGINT);
  const ProgramResult stopped = first.wait();
  EXPECT_EQ(stopped.status, 130) << stopped.err;
  expect_refusal(train(out, 10'000'000), 2, "holds a run");
  const Arguments wider{"--resume", "--set", "model.width=9"};
  expect_refusal(train(out, 10'000'000) + wider, 2, "[model.width]");
  const auto logged = [&] { return fs::file_size(out + "/metrics.csv"); };
  const auto before = logged();
  Program again(hone_argv({"train", "vision", "-q", "--out", out, "--threads", "1", "--resume"}));
  ASSERT_TRUE(wait_until([&] { return logged() > before || again.has_ended(); }));
  again.send(SIGINT);
  EXPECT_EQ(again.wait().status, 130);
  EXPECT_GT(logged(), before);
  const ProgramResult fresh = run_hone(train(out, 60) + Arguments{"--fresh", "--json"});
  ASSERT_EQ(fresh.status, 0) << fresh.err;
  const Json report = parse_json(fresh.out, "stdout");
  EXPECT_EQ(report.at("steps"), 60);
  EXPECT_GT(report.at("val_accuracy").get<double>(), 0.5);
  EXPECT_TRUE(fs::exists(out + "/model/model.safetensors"));
  EXPECT_EQ(read_json_file(out + "/model/config.json").at("classes").size(), 3u);
}

TEST_F(TrainVision, what_cannot_run_leaves_no_folder) {
  const std::string out = path("new");
  expect_refusal({"train", "vision", "--out", out}, 2);
  expect_refusal({"train", "vision", "--out", "", "--data", path("data")}, 2, "a path");
  expect_refusal({"train", "vision", "--out", out, "--resume"}, 3, "no run to resume");
  expect_refusal({"train", "vision", "--out", out, "--data", path("none")}, 3);
  fs::create_directory(path("empty"));
  expect_refusal({"train", "vision", "--out", out, "--data", path("empty")}, 3);
  for (const char* set : {"model.name=vit", "model.hidden_size=8", "data.image_size=64",
                          "optim.state_dtype=fp16", "trainer.micro_batch=0"})
    expect_refusal(train(out, 5) + Arguments{"--set", set}, 2);
  write_bytes(path("data/train-labels-idx1-ubyte"), idx_file({59}, std::string(59, '\0')));
  expect_refusal(train(out, 5), 3);
  EXPECT_FALSE(fs::exists(out));
}

// Replacing a run removes its checkpoints, whose names these classes have.
TEST_F(TrainVision, images_in_the_place_of_checkpoints_are_spared) {
  const std::string out = path("run"), data = out + "/checkpoints";
  for (const char* name : {"step_00000001", "step_00000003", "other"}) {
    for (int i = 0; i < 12; ++i) {
      fs::create_directories(data + "/" + name);
      write_text_file(data + "/" + name + "/" + std::to_string(i) + ".ppm",
                      "P6 1 1 255\n" + std::string(3, static_cast<char>('a' + i)));
    }
  }
  const auto count = [&] {
    const fs::recursive_directory_iterator all(data);
    return std::count_if(begin(all), end(all), [](const auto& at) { return at.is_regular_file(); });
  };
  expect_refusal({"train", "vision", "--fresh", "--out", out, "--data", data, "--set",
                  "trainer.steps=1", "--set", "data.image_size=8"},
                 2, "must not be the input");
  EXPECT_EQ(count(), 36);
}

// What it writes would be images and classes of the next run.
TEST_F(TrainVision, writes_nothing_into_the_folder_of_the_images) {
  fs::create_symlink(path("data"), path("link"));
  for (const char* out : {"data", "data/", "data/train/x", "link/run", "data/train-images"}) {
    expect_refusal(train(path(out), 5), 2,
                   "The output must not lie within the input " + path("data") + ".");
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(path("data")), {}), 4) << "the four files";
}

TEST_F(TrainVision, a_device_that_is_not_there_ends_with_4_and_an_unknown_one_with_2) {
  const std::string out = path("new");
  const auto on = [&](const char* device) {
    return train(out, 5) + Arguments{"--set", std::string("trainer.device=") + device};
  };
  expect_refusal(on("cuda:63"), 4);
  expect_refusal(on("cuda:63") + Arguments{"--memory-report"}, 4);
  expect_refusal(on("gpu"), 2, "expected cpu, cuda or cuda:N, got gpu");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(TrainVision, starts_from_given_weights) {
  ASSERT_EQ(run_hone(train(path("first"), 40)).status, 0);
  const std::string out = path("second");
  const auto with = [&](const std::string& init) {
    return train(out, 2) + Arguments{"--init", init};
  };
  write_bytes(path("text"), "no weights");
  write_bytes(path("weights.pth"), "PK\x03\x04");
  expect_refusal(with(""), 2);
  const ProgramResult twice = run_hone(with(path("first")) + Arguments{"--set", "model.init=x"});
  EXPECT_EQ(twice.status, 2);
  EXPECT_THAT(twice.err, HasSubstr("either --init or --set model.init, got both"));
  expect_refusal(with(path("none")), 3, "No such file");
  expect_refusal(with(path("data")), 3, "got another folder");
  expect_refusal(with(path("text")), 3);
  expect_refusal(with(path("weights.pth")), 4);
  const Arguments another{"--set", "model.name=cnn"};
  expect_refusal(with(path("first")) + another, 2, "No tensor fits the model");
  EXPECT_FALSE(fs::exists(out));
  const ProgramResult result = run_hone(with(path("first")) + Arguments{"--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const ProgramResult fresh = run_hone(train(path("third"), 2) + Arguments{"--json"});
  const auto loss = [](const ProgramResult& run) {
    return parse_json(run.out, "stdout").at("train_loss").get<double>();
  };
  EXPECT_LT(loss(result), loss(fresh));
  EXPECT_THAT(read_text_file(out + "/train.toml"), HasSubstr(path("first")));
}

TEST_F(TrainVision, prints_the_memory_of_a_step) {
  const ProgramResult result =
      run_hone(train(path("none"), 5) +
               Arguments{"--find-batch-size", "--json", "--set", "trainer.max_memory_mb=4"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json report = parse_json(result.out, "stdout");
  EXPECT_GT(report.at("largest_micro_batch").get<Index>(), 0);
  EXPECT_GT(report.at("measured").at("activations").get<Index>(), 0);
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(TrainVision, the_model_classifies_files_and_measures_itself) {
  const std::string model = path("run/model");
  ASSERT_EQ(run_hone(train(path("run"), 40)).status, 0);
  write_bytes(path("x.pgm"), "P5\n12 12\n255\n" + bar_picture(12, 4, 3));
  const ProgramResult named = run_hone({"classify", model, path("x.pgm"), "--top", "1", "--json"});
  ASSERT_EQ(named.status, 0) << named.err;
  const Json image = parse_json(named.out, "stdout").at("images").at(0);
  EXPECT_EQ(image.at("image"), path("x.pgm"));
  EXPECT_EQ(image.at("classes").size(), 1u);
  const ProgramResult measured = run_hone({"classify", model, "--data", path("data"), "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  EXPECT_EQ(parse_json(measured.out, "stdout").at("images"), 15);
  expect_refusal({"classify", model}, 2, "neither");
  expect_refusal({"classify", model, path("x.pgm"), "--data", path("data")}, 2, "both");
  expect_refusal({"classify", model, path("x.pgm"), "--top", "0"}, 2, "--top: expected");
  const ProgramResult mixed = run_hone({"classify", model, path("none.png"), path("x.pgm")});
  EXPECT_EQ(mixed.status, 3);
  EXPECT_THAT(mixed.err, HasSubstr("none.png"));
  EXPECT_THAT(mixed.out, HasSubstr("x.pgm"));
  expect_refusal({"classify", path("run"), path("x.pgm")}, 3, "config.json");
  expect_refusal({"classify", model, "--data", path("none")}, 3);
}

}  // namespace
}  // namespace hone::test
