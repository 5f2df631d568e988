// SPDX-License-Identifier: Apache-2.0
// `hone train paco`, and `hone train vision` with a loss of features: what a run leaves behind, and
// that no interrupt changes it; what is refused.
#include <gmock/gmock.h>

#include <csignal>
#include <sstream>

#include "hone/core/file/file_io.h"
#include "tests/cli/cli_fixture.h"
#include "tests/support/image_files.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Keys = std::vector<std::string>;

constexpr std::size_t kSteps = 32;  // 8 passes over 24 images
const Keys kTiny{"model.name=resnet20", "model.width=8", "trainer.micro_batch=6",
                 "lr.warm_up_steps=2"};
const Keys kLeaves{"data.path=leaves",           "data.leaves.classes=3",    "data.leaves.size=32",
                   "data.leaves.train=8",        "data.leaves.val=4",        "trainer.steps=32",
                   "trainer.checkpoint_every=5", "trainer.validate_every=12"};
// LibTorch's generator draws in each step, and the matching changes after the first pass.
const Keys kDrawing{"paco.pool=one_image", "paco.warm_up_epochs=1"};

Arguments train(const std::string& job, const std::string& out, const std::vector<Keys>& lists) {
  Arguments arguments{"train", job, "-q", "--threads", "1", "--out", out};
  for (const Keys& keys : lists) {
    for (const std::string& key : keys) arguments = arguments + Arguments{"--set", key};
  }
  return arguments;
}

Arguments resume(const std::string& job, const std::string& out) {
  return {"train", job, "-q", "--threads", "1", "--out", out, "--resume"};
}

// metrics.csv; cells without a value are empty.
struct Metrics {
  explicit Metrics(const std::string& out) {
    std::istringstream text(read_text_file(out + "/metrics.csv"));
    for (std::string line; std::getline(text, line);) {
      std::istringstream cells(line);
      std::vector<std::string>& row = rows.emplace_back();
      for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
      row.resize(rows.front().size());
    }
    names = rows.front();
    rows.erase(rows.begin());
  }
  std::size_t column(const std::string& name) const {
    const auto found = std::ranges::find(names, name);
    EXPECT_TRUE(found != names.end()) << name;
    return static_cast<std::size_t>(found - names.begin());
  }
  std::string cell(std::size_t row, const std::string& name) const {
    return rows.at(row).at(column(name));
  }
  double number(std::size_t row, const std::string& name) const {
    return std::stod(cell(row, name));
  }

  std::vector<std::string> names;
  std::vector<std::vector<std::string>> rows;
};

// All but times and memory.
std::vector<std::vector<std::string>> lasting_rows(const std::string& out) {
  Metrics metrics(out);
  for (const char* name : {"tokens_per_s", "forward_s", "backward_s", "optimizer_s", "memory_mb"}) {
    for (auto& row : metrics.rows) row.at(metrics.column(name)).clear();
  }
  return metrics.rows;
}

// All but times, memory and places.
Json lasting_report(Json report) {
  for (const char* key :
       {"forward_seconds", "backward_seconds", "optimizer_seconds", "peak_rss_bytes"}) {
    EXPECT_EQ(report.at("amp").erase(key), 1U) << key;
  }
  for (const char* key : {"images_per_s", "loop_share", "seconds", "out", "model"}) {
    report.erase(key);
  }
  if (report.at("objective").is_object()) report["objective"]["last_step"].erase("seconds");
  return report;
}

// The model, the state at the end (weights, prototypes, the guard's sums; the optimizer's moments,
// the generator) and the metrics.
void expect_same_run(const std::string& got, const std::string& want) {
  for (const char* file :
       {"/model/model.safetensors", "/checkpoints/step_00000032/weights.safetensors",
        "/checkpoints/step_00000032/state.safetensors"}) {
    EXPECT_TRUE(read_text_file(got + file) == read_text_file(want + file)) << file;
  }
  const auto rows = lasting_rows(got);
  EXPECT_EQ(rows.size(), kSteps);
  EXPECT_EQ(rows, lasting_rows(want));
}

std::size_t rows_written(const std::string& out) {
  const std::string csv = out + "/metrics.csv";
  if (!fs::exists(csv)) return 0;
  const std::string text = read_text_file(csv);
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  return lines == 0 ? 0 : lines - 1;
}

// Sends the signal once `rows` steps are done.
void stop_after(std::size_t rows, int signal, const Arguments& arguments, const std::string& out) {
  Program program(hone_argv(arguments));
  ASSERT_TRUE(wait_until([&] { return rows_written(out) >= rows || program.has_ended(); }));
  program.send(signal);
  const ProgramResult result = program.wait();
  ASSERT_EQ(result.status, 128 + signal) << "too fast to be stopped: " << result.err;
  ASSERT_FALSE(fs::exists(out + "/model"));
}

class TrainPaco : public Cli {
 protected:
  void SetUp() override {
    if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
  }
  // The same for all tests.
  struct Whole {
    TemporaryFolder folder;
    std::string out = (folder.path() / "run").string();
    Json report = json_of(train("paco", out, {kTiny, kLeaves, kDrawing}));
  };
  static const Whole& whole() {
    static const Whole run;
    return run;
  }
  // Pictures of noise over an edge in a folder of this name; all the same for one `seed`.
  void write_pictures(const std::string& name, int count, bool all_equal = false) const {
    for (int i = 0; i < count; ++i) {
      const auto seed = static_cast<std::uint64_t>(all_equal ? 1 : 100 * std::ssize(name) + i);
      write_bytes(path(name) + "/" + std::to_string(i) + ".ppm",
                  ppm_file(32, 32, scene(32, 32, 3, seed)));
    }
  }
  Keys folder(const std::string& name) const {
    return {"data.path=" + path(name), "data.image_size=32"};
  }
  void expect_goes_on(const std::string& job, const std::vector<Keys>& keys, std::size_t rows,
                      int signal, const std::string& whole_out, const Json& whole_report) const {
    const std::string out = path("stopped");
    ASSERT_NO_FATAL_FAILURE(stop_after(rows, signal, train(job, out, keys), out));
    EXPECT_LT(rows_written(out), kSteps);
    const Json report = json_of(resume(job, out));
    EXPECT_EQ(lasting_report(report), lasting_report(whole_report));
    expect_same_run(out, whole_out);
  }
};

TEST_F(TrainPaco, leaves_the_terms_of_its_loss_a_verdict_and_a_report) {
  const Json& report = whole().report;
  EXPECT_EQ(report.at("method"), "paco");
  EXPECT_EQ(report.at("steps"), kSteps);
  EXPECT_EQ(report.at("classes"), 3);
  EXPECT_EQ(report.at("guard"), "ok") << "one period has ended, and there is no other norm";
  const Json& objective = report.at("objective");
  EXPECT_EQ(objective.at("backbone"), "resnet20");
  EXPECT_EQ(objective.at("num_classes"), 3);
  EXPECT_EQ(objective.at("num_parts"), 4);
  EXPECT_EQ(objective.at("class_prototypes_initialized"), 3);
  EXPECT_EQ(objective.at("current_epoch"), 7);
  EXPECT_EQ(objective.at("using_mahalanobis"), true);
  EXPECT_EQ(objective.at("optimizations").at("limited_negatives_pool"), true);
  EXPECT_GT(objective.at("last_step").at("seconds").at("backbone").get<double>(), 0);

  const Metrics metrics(whole().out);
  ASSERT_EQ(metrics.rows.size(), kSteps);
  for (std::size_t row = 0; row < kSteps; ++row) {
    const double sum =
        metrics.number(row, "ce") + metrics.number(row, "pac") + 0.1 * metrics.number(row, "soc");
    EXPECT_NEAR(metrics.number(row, "loss"), sum, 1e-5 * sum) << "row " << row;
    EXPECT_GT(metrics.number(row, "ce"), 0);
    EXPECT_GT(metrics.number(row, "soc"), 0);
    const double active = metrics.number(row, "active_share");
    EXPECT_TRUE(active >= 0 && active <= 1) << active;
    EXPECT_EQ(active == 0, metrics.number(row, "pac") == 0) << "row " << row;
    EXPECT_EQ(metrics.cell(row, "aux"), "");
  }
  EXPECT_GT(metrics.number(0, "active_share"), 0);
  EXPECT_EQ(metrics.number(kSteps - 1, "val_loss"), report.at("val_loss").get<double>());
}

TEST_F(TrainPaco, leaves_a_classifier_that_classify_and_eval_take) {
  const std::string model = whole().report.at("model").get<std::string>();
  EXPECT_EQ(read_json_file(model + "/config.json").at("parts").at("count"), 4);
  write_bytes(path("x.ppm"), ppm_file(32, 32, scene(32, 32, 3)));
  const Json named = json_of({"classify", model, path("x.ppm"), "--top", "3"});
  const Json& classes = named.at("images").at(0).at("classes");
  ASSERT_EQ(classes.size(), 3u);
  double sum = 0;
  for (const Json& one : classes) sum += one.at("probability").get<double>();
  EXPECT_NEAR(sum, 1, 1e-5);
  const Json card = json_of({"eval", model, "--data", "leaves", "--threads", "1"});
  EXPECT_EQ(card.at("images"), 12);
  EXPECT_EQ(card.at("accuracy"), whole().report.at("val_accuracy"));
  const double loss = whole().report.at("val_loss").get<double>();
  EXPECT_NEAR(card.at("loss").get<double>(), loss, 1e-5 * loss);
}

TEST_F(TrainPaco, an_interrupted_run_goes_on_to_the_bytes_of_a_whole_one) {
  expect_goes_on("paco", {kTiny, kLeaves, kDrawing}, 6, SIGINT, whole().out, whole().report);
}

// It goes on from a checkpoint that is older than the last row.
TEST_F(TrainPaco, a_killed_run_goes_on_to_the_bytes_of_a_whole_one) {
  expect_goes_on("paco", {kTiny, kLeaves, kDrawing}, 12, SIGKILL, whole().out, whole().report);
}

TEST_F(TrainPaco, the_same_seed_gives_the_same_bytes_without_threads_that_prepare_batches) {
  ASSERT_THAT(read_text_file(whole().out + "/train.toml"), HasSubstr("\nworkers = 2\n"));
  const std::string out = path("again");
  const ProgramResult result =
      run_hone(train("paco", out, {kTiny, kLeaves, kDrawing, {"data.workers=0"}}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("guard against collapse: ok\n"));
  expect_same_run(out, whole().out);
}

class TrainWithFeatures : public TrainPaco, public testing::WithParamInterface<const char*> {};

TEST_P(TrainWithFeatures, an_interrupted_run_goes_on_to_the_bytes_of_a_whole_one) {
  const std::string method = GetParam(), out = path("whole");
  const Keys features{"loss.method=" + method, "loss.views=2", "augment.flip=0.5", "augment.ops=2"};
  const Json report = json_of(train("vision", out, {kTiny, kLeaves, features}));
  EXPECT_EQ(report.at("method"), method);
  EXPECT_EQ(report.at("guard"), "ok");
  EXPECT_TRUE(report.at("objective").is_null());
  const Metrics metrics(out);
  ASSERT_EQ(metrics.rows.size(), kSteps);
  for (std::size_t row = 0; row < kSteps; ++row) {
    const double sum = metrics.number(row, "ce") + metrics.number(row, "aux");
    EXPECT_NEAR(metrics.number(row, "loss"), sum, 1e-5 * sum) << "row " << row;
    EXPECT_EQ(metrics.cell(row, "active_share").empty(), method == "supcon");
    EXPECT_EQ(metrics.cell(row, "pac"), "");
  }
  EXPECT_GT(metrics.number(0, "aux"), 0);
  expect_goes_on("vision", {kTiny, kLeaves, features}, 6, SIGINT, out, report);
}

INSTANTIATE_TEST_SUITE_P(Methods, TrainWithFeatures, testing::Values("supcon", "triplet"),
                         [](const auto& method) { return std::string(method.param); });

TEST_F(TrainPaco, refuses_keys_by_name_and_leaves_no_folder) {
  const std::string out = path("new");
  const std::vector<std::pair<Keys, const char*>> cases{
      {{"model.name=cnn"}, "expected a ResNet for loss.method = paco, got cnn"},
      {{"loss.method=ce"}, "[loss.method] expected paco for train paco"},
      {{"paco.lamda_pac=2"}, "Unknown key 'paco.lamda_pac'. Did you mean 'paco.lambda_pac'?"},
      {{"paco.mining=all"}, "[paco.mining] expected semi_hard or hardest, got all"},
      {{"model.name=resnet18"},
       "[paco.parts] expected at most the 1 x 1 cells of the map of paco.stage = last"},
      {{"trainer.micro_batch=1"},
       "[trainer.micro_batch] expected at least 2 for the BatchNorm of resnet20, got 1"}};
  for (const auto& [keys, why] : cases) {
    expect_refusal(train("paco", out, {kTiny, kLeaves, keys}), 2, why);
  }
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(TrainPaco, refuses_folders_that_have_nothing_to_tell_apart) {
  const std::string out = path("new");
  const auto on = [&](const char* data) { return train("paco", out, {kTiny, folder(data)}); };
  expect_refusal(on("none"), 3, "no such folder");
  fs::create_directory(path("empty"));
  expect_refusal(on("empty"), 3, "no folders of images");
  write_pictures("one/a", 4);
  expect_refusal(on("one"), 3, "expected images of at least two classes, got 1");
  for (const char* name : {"split/train/a", "split/train/b", "split/test/a", "split/test/c"}) {
    write_pictures(name, 4);
  }
  expect_refusal(on("split"), 3, "Class c does not occur in train.");
  // One of two classes has no image: it is named, and then there is one class.
  fs::create_directory(path("one/b"));
  const ProgramResult result = run_hone(on("one"));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr(path("one/b") + ", which has no image"));
  EXPECT_THAT(result.err, HasSubstr("expected images of at least two classes, got 1"));
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(TrainPaco, counts_and_skips_broken_images_and_classes_without_one) {
  write_pictures("data/a", 6);
  write_pictures("data/bb", 6);
  write_bytes(path("data/a/0_cut.ppm"), "P6\n32 32\n255\nshort");
  fs::create_directory(path("data/c"));
  const Keys short_run{"trainer.steps=3"};
  const ProgramResult result = run_hone(
      train("paco", path("run"), {kTiny, folder("data"), short_run}) + Arguments{"--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json report = parse_json(result.out, "stdout");
  EXPECT_EQ(report.at("broken_images"), 1);
  EXPECT_EQ(report.at("classes"), 2);
  EXPECT_EQ(report.at("objective").at("num_classes"), 2);
  EXPECT_THAT(result.err, HasSubstr("0_cut.ppm"));
  EXPECT_THAT(result.err, HasSubstr(path("data/c") + ", which has no image"));
  EXPECT_EQ(read_json_file(path("run/model/config.json")).at("classes"), Json::array({"a", "bb"}));
}

TEST_F(TrainPaco, refuses_a_class_of_which_no_image_can_be_decoded) {
  write_pictures("data/a", 6);
  write_pictures("data/bb", 6);
  for (int i = 0; i < 3; ++i) {
    write_bytes(path("data/c/" + std::to_string(i) + ".ppm"), "P6\n32 32\n255\nshort");
  }
  const ProgramResult result = run_hone(train("paco", path("run"), {kTiny, folder("data")}));
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("No training image of c can be decoded."));
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(TrainPaco, goes_on_with_no_run_of_another_job) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 3 == 0 ? "the cat sat.\n" : "a dog ran.\n";
  write_text_file(path("text.txt"), text);
  const Keys tiny_lm{"data.path=" + path("text.txt"),
                     "data.tokenizer=byte",
                     "model.hidden_size=16",
                     "model.heads=2",
                     "model.layers=1",
                     "model.context=16",
                     "trainer.steps=2"};
  const ProgramResult lm = run_hone(train("lm", path("lm"), {tiny_lm}));
  ASSERT_EQ(lm.status, 0) << lm.err;
  expect_refusal(resume("paco", path("lm")), 2, "got a run of train lm");
  const ProgramResult vision = run_hone(
      train("vision", path("vision"), {kTiny, kLeaves, {"model.name=mlp", "trainer.steps=3"}}));
  ASSERT_EQ(vision.status, 0) << vision.err;
  expect_refusal(resume("paco", path("vision")), 2, "[loss.method] expected paco for train paco");
  expect_refusal(train("paco", path("none"), {kTiny, kLeaves}) + Arguments{"--resume"}, 3,
                 "no run to resume");
}

// Equal images in two classes, all of them in each step: whatever the model gives, it gives to both
// classes, so that its cross entropy is at least ln 2. A step is a pass, and a period 20 of them.
class TrainThatCannotLearn : public TrainPaco {
 protected:
  void SetUp() override {
    TrainPaco::SetUp();
    for (const char* name : {"data/a", "data/b"}) write_pictures(name, 5, /*all_equal=*/true);
  }
  Arguments job(const std::string& verb, const std::string& out, const Keys& keys) const {
    return train(verb, path(out),
                 {kTiny, folder("data"), {"trainer.micro_batch=8", "trainer.steps=70"}, keys});
  }
  Keys mlp(const std::string& on_collapse) const {
    return {"model.name=mlp", "lr.schedule=constant", "loss.on_collapse=" + on_collapse};
  }
};
constexpr const char* kCollapse = "After pass 60 over the images the model predicts by chance";

TEST_F(TrainThatCannotLearn, ends_warns_or_is_not_looked_at) {
  expect_refusal(job("vision", "stop", mlp("stop")), 1, kCollapse);
  EXPECT_EQ(rows_written(path("stop")), 60u);
  EXPECT_FALSE(fs::exists(path("stop/model")));
  for (const bool looks : {true, false}) {
    const std::string name = looks ? "warn" : "off";
    const ProgramResult result = run_hone(job("vision", name, mlp(name)) + Arguments{"--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    const Json guard = parse_json(result.out, "stdout").at("guard");
    EXPECT_EQ(guard, looks ? Json("collapsed") : Json());
    EXPECT_EQ(std::ranges::count(result.err, '\n'), looks ? 1 : 0) << result.err;
    EXPECT_EQ(result.err.find(kCollapse) != std::string::npos, looks) << result.err;
  }
}

// Two and a half periods before the end of the first run count.
TEST_F(TrainThatCannotLearn, is_judged_across_a_resume) {
  const Json before =
      json_of(job("vision", "run", mlp("warn")) + Arguments{"--set", "trainer.steps=50"});
  EXPECT_EQ(before.at("guard"), "ok");
  const ProgramResult result =
      run_hone(resume("vision", path("run")) + Arguments{"--set", "trainer.steps=70", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(parse_json(result.out, "stdout").at("guard"), "collapsed");
  EXPECT_THAT(result.err, HasSubstr(kCollapse));
}

TEST_F(TrainThatCannotLearn, ends_by_default_with_part_contrast) {
  const Keys as_it_is{"augment.flip=0", "augment.ops=0", "augment.occlude=0", "augment.shuffle=0"};
  const ProgramResult result = run_hone(job("paco", "run", as_it_is));
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(std::string("hone: [train] ") + kCollapse));
  EXPECT_THAT(result.err, HasSubstr("Lower lr.peak, or start from trained weights (model.init)."));
  EXPECT_FALSE(fs::exists(path("run/model")));
}

}  // namespace
}  // namespace hone::test
