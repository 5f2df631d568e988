// SPDX-License-Identifier: Apache-2.0
// `hone tune` as a program: exit statuses, and --check in a process of its own.
#include <gmock/gmock.h>

#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "tests/cli/cli_fixture.h"
#include "tests/support/image_files.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Tune : public Cli {
 protected:
  void SetUp() override {
    if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
    write_bar_folder(path("data"), 12, 3, 60, 15);
    const ProgramResult trained =
        run_hone({"train", "vision", "-q", "--data", path("data"), "--out", path("run"),
                  "--threads", "1", "--set", "trainer.micro_batch=16", "--set", "trainer.steps=20",
                  "--set", "model.name=mlp", "--set", "model.width=64"});
    ASSERT_EQ(trained.status, 0) << trained.err;
  }
  Arguments tune(const std::string& out, double max_ratio) const {
    write_text_file(path(out + ".toml"),
                    "kind = \"layers\"\nquality = { metric = \"loss\", max_ratio = " +
                        std::to_string(max_ratio) + " }\nsearch = { trials = 3 }\n" +
                        "[[layers]]\nselect = { type = \"Linear\" }\n");
    return {"tune",   path("run/model"), "-q",    "--space", path(out + ".toml"),
            "--data", path("data"),      "--out", path(out), "--threads",
            "1"};
  }
};

TEST_F(Tune, writes_a_model_that_a_fresh_process_finds_within_the_limit) {
  const ProgramResult found = run_hone(tune("out", 1000));
  ASSERT_EQ(found.status, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("goal: the smallest model with a loss of at most"));
  EXPECT_EQ(run_hone({"eval", path("out/model"), "--data", path("data")}).status, 0);
  const Arguments check{"tune", path("out"), "--check", "--data", path("data"), "--threads", "1"};
  EXPECT_TRUE(json_of(check).at("met").get<bool>());
  Json result = read_json_file(path("out/layers.json"));
  const Json before = result;
  result["held_back"]["least_quality"] = 0;  // a loss of 0
  write_json_file(path("out/layers.json"), result);
  const ProgramResult missed = run_hone(check);
  EXPECT_EQ(missed.status, 1);
  EXPECT_THAT(missed.out, HasSubstr("beyond the limit"));
  write_json_file(path("out/layers.json"), before);
  write_bar_folder(path("other"), 12, 3, 60, 12);
  const ProgramResult other = run_hone({"tune", path("out"), "--check", "--data", path("other")});
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr("measured on other data"));
}

TEST_F(Tune, ends_with_status_1_where_nothing_is_good_enough) {
  const ProgramResult result = run_hone(tune("none", 0.001));
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("infeasible: the nearest"));
  EXPECT_FALSE(fs::exists(path("none/model")));
  EXPECT_FALSE(read_json_file(path("none/layers.json")).at("feasible").get<bool>());
}

TEST_F(Tune, refuses_what_it_cannot_use) {
  const Arguments job = tune("out", 2);
  expect_refusal({"tune", path("run/model"), "--data", path("data"), "--out", path("x")}, 2);
  expect_refusal({"tune", path("run/model"), "--data", path("data"), "--check", "--out", "x"}, 2);
  expect_refusal({"tune", path("none"), "--data", path("data"), "--space", path("out.toml"),
                  "--out", path("x")},
                 3);
  expect_refusal({"tune", path("run"), "--check", "--data", path("data")}, 3, "layers.json");
  write_text_file(path("out.toml"), "kind = \"layers\"\nquality = { metric = \"bleu\" }\n");
  expect_refusal(job, 2, "perplexity, loss or accuracy");
  EXPECT_FALSE(fs::exists(path("out")));
}

}  // namespace
}  // namespace hone::test
