// SPDX-License-Identifier: Apache-2.0
// `hone eval` and `hone classify --data` on classifiers of images.
#include <gmock/gmock.h>

#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "tests/cli/cli_fixture.h"
#include "tests/support/image_files.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class EvalVision : public Cli {
 protected:
  void SetUp() override {
    if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
    write_bar_folder(path("data"), 12, 3, 60, 15);
    model_ = train({"--data", path("data"), "--set", "model.name=mlp"});
  }
  // The folder of a model that was trained for a moment.
  std::string train(const Arguments& more, const std::string& out = "run") const {
    const ProgramResult result = run_hone(
        Arguments{"train", "vision", "-q", "--out", path(out), "--threads", "1", "--set",
                  "trainer.micro_batch=16", "--set", "trainer.steps=20", "--set", "model.width=8"} +
        more);
    EXPECT_EQ(result.status, 0) << result.err;
    return path(out + "/model");
  }
  Arguments eval(const Arguments& more) const { return Arguments{"eval", model_} + more; }

  std::string model_;
};

TEST_F(EvalVision, prints_the_same_card_as_classify) {
  const Arguments data{"--data", path("data"), "--threads", "1"};
  const Json card = json_of(eval(data));
  EXPECT_EQ(card, json_of(Arguments{"classify", model_} + data));
  for (const char* key : {"images", "broken_images", "loss", "accuracy", "classes", "top5_accuracy",
                          "balanced_accuracy", "ece", "temperature"}) {
    EXPECT_FALSE(card.at(key).is_null()) << key;
  }
  for (const char* key : {"fisher_ratio", "neighbor_accuracy", "baseline"}) {
    EXPECT_TRUE(card.at(key).is_null()) << key;
  }
  EXPECT_EQ(card.at("images"), 15);
  EXPECT_EQ(card.at("reliability").size(), 15u);
  EXPECT_EQ(json_of(eval(data + Arguments{"--ece-bins", "4"})).at("reliability").size(), 4u);
  EXPECT_GT(json_of(eval(data + Arguments{"--all"})).at("images"), 15);
  const ProgramResult text = run_hone(eval(data));
  EXPECT_THAT(text.out, ContainsRegex("images +15\n"));
  EXPECT_EQ(text.out, run_hone(Arguments{"classify", model_} + data).out);
}

TEST_F(EvalVision, finds_the_model_behind_the_options_too) {
  EXPECT_EQ(run_hone({"eval", "--data", path("data"), model_}).status, 0);
  EXPECT_EQ(run_hone({"eval", "--data=" + path("data"), "--", model_}).status, 0);
}

TEST_F(EvalVision, writes_a_report_and_compares) {
  const std::string other =
      train({"--data", path("data"), "--set", "model.name=mlp", "--seed", "5"}, "other");
  const Json card = json_of(eval({"--data", path("data"), "--report", path("report.html"),
                                  "--baseline", other, "--seed", "3"}));
  EXPECT_EQ(card.at("baseline").at("model"), other);
  EXPECT_EQ(card.at("baseline").at("difference_ci").size(), 2u);
  EXPECT_THAT(read_text_file(path("report.html")), HasSubstr("Confusion matrix"));
  expect_refusal(eval({"--data", path("data"), "--report", path("data")}), 2, "a folder");
  expect_refusal(eval({"--data", path("data"), "--report", model_ + "/config.json"}), 2);
  EXPECT_EQ(read_json_file(model_ + "/config.json").at("format"), "hone-vision");
  expect_refusal(eval({"--data", path("data"), "--report", path("data/report.html")}), 2);
  EXPECT_FALSE(fs::exists(path("data/report.html")));
}

TEST_F(EvalVision, blames_the_model_for_what_is_wrong_with_it) {
  const auto error = [&](const std::string& model, const Arguments& more, int status) {
    const ProgramResult result = run_hone(Arguments{"eval", model, "--data", path("data")} + more);
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr(model), Not(HasSubstr(path("data")))));
    return result.err;
  };
  EXPECT_THAT(error(path("run"), {}, 3), HasSubstr("a run, whose model is in its folder model/"));
  EXPECT_THAT(run_hone({"inspect", path("run")}).err, HasSubstr("its folder model/"));
  const Json config = read_json_file(model_ + "/config.json");
  write_text_file(model_ + "/config.json", "{\"format\": \"hone-vision\"");
  const std::vector<Arguments> reports{{}, {"--report", path("report.html")}};
  for (const Arguments& more : reports) {
    EXPECT_THAT(error(model_, more, 3), HasSubstr("not valid JSON"));
  }
  Json other = config;
  other["format"] = "another";
  write_json_file(model_ + "/config.json", other);
  for (const Arguments& more : reports) {
    EXPECT_THAT(error(model_, more, 4), HasSubstr("expected the model class"));
  }
  fs::remove(model_ + "/config.json");
  EXPECT_THAT(error(model_, {}, 3), HasSubstr("no config.json"));
  write_json_file(model_ + "/config.json", config);
  write_text_file(model_ + "/model.safetensors", "short");
  EXPECT_THAT(error(model_, {}, 3), HasSubstr("model.safetensors"));
  const ProgramResult data = run_hone({"eval", write_tiny_model(), "--data", path("data")});
  EXPECT_EQ(data.status, 3);
  EXPECT_THAT(data.err, HasSubstr(path("data"))) << "here the data is wrong";
}

TEST_F(EvalVision, inspect_lists_the_classifier) {
  const Json trained =
      json_of({"train", "vision", "-q", "--out", path("resnet"), "--data", path("data"),
               "--threads", "1", "--set", "model.name=resnet20", "--set", "model.width=8", "--set",
               "trainer.steps=1", "--set", "trainer.micro_batch=4"});
  const std::string model = trained.at("model").get<std::string>();
  const Json document = json_of({"inspect", model, "--stats"});
  EXPECT_EQ(document.at("format"), "hone-vision");
  EXPECT_EQ(document.at("parameters"), trained.at("parameters"));
  EXPECT_EQ(document.at("bytes"), fs::file_size(model + "/model.safetensors"));
  EXPECT_EQ(document.at("classes"), Json::array({"0", "1", "2"}));
  const Json& architecture = document.at("architecture");
  EXPECT_EQ(architecture.at("family"), "resnet20");
  EXPECT_EQ(architecture.at("width"), 8);
  EXPECT_EQ(architecture.at("channels"), 1);
  EXPECT_EQ(architecture.at("height"), 12);
  EXPECT_EQ(architecture.at("image_width"), 12);
  EXPECT_FALSE(architecture.contains("layers")) << "those of mlp";
  EXPECT_EQ(document.at("tensors").at(0).at("name"), "conv1.weight");
  EXPECT_TRUE(document.at("tensors").at(0).contains("min"));
  const std::string shown = run_hone({"inspect", model_}).out;
  EXPECT_THAT(shown, AllOf(HasSubstr("hone-vision"), HasSubstr("mlp"), HasSubstr("3: 0, 1, 2")));
  for (const auto& [change, text] : std::vector<std::pair<const char*, const char*>>{
           {R"({"classes": 3})", "names for classes"},
           {R"({"classes": ["a", 1]})", "names for classes"},
           {R"({"height": "x"})", "a whole number for height"},
           {R"({"width": null})", "The key width is missing"},
           {R"({"model": 3})", "a string for model"}}) {
    Json config = read_json_file(model_ + "/config.json");
    config.update(parse_json(change, "change"));
    fs::create_directories(path("changed"));
    write_json_file(path("changed/config.json"), config);
    fs::copy(model_ + "/model.safetensors", path("changed/model.safetensors"),
             fs::copy_options::overwrite_existing);
    expect_refusal({"inspect", path("changed")}, 3, text);
  }
  fs::remove(model_ + "/model.safetensors");
  expect_refusal({"inspect", model_}, 3, "model.safetensors]");
}

TEST_F(EvalVision, refuses_options_of_the_other_kind_by_name) {
  const std::string text = write_tiny_model(), data = path("data");
  const std::vector<Arguments> of_language{{"--window", "8"},
                                           {"--max-tokens", "8"},
                                           {"--tokenizer", text},
                                           {"--kv", "f32"},
                                           {"--act", "f32"}};
  const auto expect_named = [](const Arguments& arguments, const std::string& option) {
    const ProgramResult result = run_hone(arguments);
    EXPECT_EQ(result.status, 2) << option;
    EXPECT_EQ(result.out, "") << option;
    EXPECT_TRUE(result.err.starts_with("hone: [" + option + "] This option is for")) << result.err;
  };
  for (const Arguments& option : of_language) {
    expect_named(eval({"--data", data}) + option, option[0]);
  }
  expect_named(eval({"--token-ids", data}), "--token-ids");
  write_text_file(path("text"), "a text");
  for (const Arguments& option : std::vector<Arguments>{
           {"--ece-bins", "4"}, {"--neighbors", "3"}, {"--report", path("x.html")}}) {
    expect_named(Arguments{"eval", text, "--data", path("text")} + option, option[0]);
  }
  expect_refusal({"eval", text, "--data", path("text"), "--baseline", model_}, 2,
                 "the model is none");
  expect_refusal(eval({"--data", data, "--baseline", text}), 4, "expected a classifier of images");
  EXPECT_FALSE(fs::exists(path("x.html")));
}

TEST_F(EvalVision, refuses_what_it_cannot_measure) {
  expect_refusal(eval({"--data", path("none")}), 3);
  expect_refusal(eval({"--data", path("data"), "--ece-bins", "0"}), 2, "--ece-bins: expected");
  expect_refusal(eval({"--data", path("data"), "--neighbors", "0"}), 2, "--neighbors: expected");
  expect_refusal(eval({"--data", path("data"), "--baseline", path("none")}), 3);
  expect_refusal(eval({}), 2, "--data");
  expect_refusal({"eval", path("none"), "--data", path("data")}, 3);
  write_bar_folder(path("more"), 12, 5, 60, 15);
  expect_refusal(eval({"--data", path("more")}), 2, "does not know the class");
  for (const char* verb : {"eval", "classify"}) {
    expect_refusal({verb, model_, "--data", "leaves"}, 2, "trained on leaves");
  }
  Json config = read_json_file(model_ + "/config.json");
  config["parts"] = 3;
  write_json_file(model_ + "/config.json", config);
  expect_refusal(eval({"--data", path("data")}), 3, "config.json: parts]");
  write_text_file(model_ + "/config.json", "{\"format\": \"hone-vision\"");
  expect_refusal(eval({"--data", path("data")}), 3, "not valid JSON");
}

TEST_F(EvalVision, takes_the_leaves_of_the_training) {
  const std::string model = train({"--data", "leaves", "--set", "model.name=resnet20", "--set",
                                   "data.leaves.classes=3", "--set", "data.leaves.size=32", "--set",
                                   "data.leaves.train=6", "--set", "data.leaves.val=4"},
                                  "leafy");
  const Arguments data{"--data", "leaves", "--threads", "1"};
  const Json card = json_of(Arguments{"eval", model} + data);
  EXPECT_EQ(card.at("images"), 12);
  EXPECT_FALSE(card.at("neighbor_accuracy").is_null());
  EXPECT_EQ(card, json_of(Arguments{"classify", model} + data));
}

}  // namespace
}  // namespace hone::test
