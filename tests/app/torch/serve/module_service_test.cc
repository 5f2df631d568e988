// SPDX-License-Identifier: Apache-2.0
// Classifiers and TorchScript files behind HTTP.
#include "hone/app/torch/serve/module_service.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hone/app/torch/classify.h"
#include "hone/core/base64.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/server/server.h"
#include "hone/train/task/vision/vision_model.h"
#include "tests/server/http_client.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/test_data.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;
using test::HttpAnswer;
using test::RawClient;
using testing::HasSubstr;
using torch::Tensor;

class ModuleServiceTest : public testing::Test {
 protected:
  ModuleServiceTest() { set_log_level(LogLevel::Error); }
  ~ModuleServiceTest() override { set_log_level(LogLevel::Warning); }

  void serve(ServedModule module, const nn::ModuleServerOptions& batching = {.max_wait_ms = 0}) {
    service_ = std::make_unique<ModuleService>(std::move(module), "net", batching);
    server::ServerOptions options;
    options.listener.port = 0;
    options.drain_s = 0.05;
    server_.emplace(options, *service_);
    server_->start();
  }
  void TearDown() override {
    if (server_) server_->stop();
    server_.reset();
  }
  HttpAnswer infer(const Json& body) const {
    return RawClient(server_->port()).post_json("/v1/infer", body);
  }
  HttpAnswer send_image(const std::string& bytes, const std::string& type,
                        const std::string& query = "") const {
    RawClient client(server_->port());
    client.send("POST /v1/infer" + query + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + type +
                "\r\nContent-Length: " + std::to_string(bytes.size()) + "\r\n\r\n" + bytes);
    return client.read();
  }
  // A counter or a gauge of /metrics.
  Index metric(const std::string& name) const {
    const std::string text = "\n" + RawClient(server_->port()).get("/metrics").body;
    const std::size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return std::atoll(text.c_str() + at + name.size() + 2);
  }

  // A classifier of 12 x 12 pictures with seeded weights.
  ServedModule classifier() {
    const task::VisionModel model{.net = nn::make_vision_net({.name = "cnn",
                                                              .width = 8,
                                                              .channels = 1,
                                                              .height = 12,
                                                              .image_width = 12,
                                                              .classes = 4},
                                                             /*seed=*/1),
                                  .classes = {"oak", "elm", "ash", "fir"},
                                  .stats = {{0.4}, {0.25}}};
    model_ = folder_.path() / "model";
    task::write_vision_model(model_, model);
    return open_served_module(model_);
  }
  fs::path write_script(const std::string& code) const {
    torch::jit::Module module("__torch__.Net");
    module.register_parameter("weight", at::linspace(-1, 1, 15).reshape({5, 3}), false);
    module.register_attribute("training", c10::BoolType::get(), true);
    module.define(code);
    const fs::path file = folder_.path() / "net.pt";
    module.save(file.string());
    return file;
  }

  test::TemporaryFolder folder_;
  fs::path model_;
  std::unique_ptr<ModuleService> service_;
  std::optional<server::Server> server_;
};

constexpr const char* kCode =
    "def forward(self, x):\n"
    "    return torch.relu(torch.matmul(x, self.weight.t()))\n";

TEST_F(ModuleServiceTest, answers_for_a_script_with_what_it_computes) {
  serve(open_served_module(write_script(kCode)), {.max_wait_ms = 50});
  const Tensor x = at::linspace(-2, 3, 12).reshape({4, 3});
  Json inputs = Json::array();
  for (int i = 0; i < 4; ++i) {
    inputs.push_back({x[i][0].item<float>(), x[i][1].item<float>(), x[i][2].item<float>()});
  }
  const HttpAnswer answer = infer({{"model", "net"}, {"inputs", inputs}, {"user", "me"}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.fields.at("x-hone-ignored"), "user");
  const Json json = answer.json();
  EXPECT_EQ(json["model"], "net");
  const Tensor want = at::matmul(x, at::linspace(-1, 1, 15).reshape({5, 3}).t()).relu();
  ASSERT_EQ(json["results"].size(), 4U);
  for (int i = 0; i < 4; ++i) {
    const Json& one = json["results"][static_cast<std::size_t>(i)];
    ASSERT_EQ(one["output"].size(), 5U);
    for (int k = 0; k < 5; ++k) {
      EXPECT_NEAR(one["output"][static_cast<std::size_t>(k)].get<double>(),
                  want[i][k].item<double>(), 1e-6);
    }
    EXPECT_EQ(one["batch"], 4) << "the inputs of a request share a batch";
    EXPECT_GE(one["latency_ms"], 0);
  }
  const Json packed = infer({{"inputs", inputs}, {"encoding_format", "base64"}}).json();
  EXPECT_EQ(packed["results"][0]["output"]["dtype"], "f32");
  EXPECT_EQ(from_base64(packed["results"][0]["output"]["b64"].get<std::string>())->size(), 20U);
}

TEST_F(ModuleServiceTest, clients_share_batches) {
  serve(open_served_module(write_script(kCode)), {.max_batch = 3, .max_wait_ms = 10000});
  std::vector<std::future<HttpAnswer>> answers;
  for (int i = 0; i < 3; ++i) {
    answers.push_back(std::async(std::launch::async, [this] {
      return infer({{"inputs", {{1, 2, 3}}}});
    }));
  }
  for (auto& answer : answers) EXPECT_EQ(answer.get().json()["results"][0]["batch"], 3);
  EXPECT_EQ(metric("hone_inputs_finished_total"), 3);
  EXPECT_EQ(metric("hone_inputs_submitted_total"), 3);
}

// As `hone classify` says, however the image comes.
TEST_F(ModuleServiceTest, classifies_images_as_classify_does) {
  serve(classifier());
  const std::string bytes = "P5\n12 12\n255\n" + test::bar_picture(12, 3, 77);
  const fs::path file = folder_.path() / "bar.pgm";
  test::write_bytes(file, bytes);
  const auto want = classify_images({.model = model_, .threads = 1}, {file}, 4)[0].classes;
  const std::string text = to_base64(std::as_bytes(std::span(bytes)));
  const Json json = infer({{"images", {text, "data:image/x-portable-graymap;base64," + text}},
                           {"top", 4},
                           {"logits", true}})
                        .json();
  const Json posted = send_image(bytes, "image/x-portable-graymap").json();
  EXPECT_EQ(posted["results"][0]["classes"].size(), 3U) << "the default of top";
  const Json more = send_image(bytes, "image/png", "?top=4&logits=true").json()["results"][0];
  EXPECT_EQ(more["classes"].size(), 4U);
  EXPECT_EQ(more["logits"].size(), 4U);
  EXPECT_EQ(send_image(bytes, "image/png", "?frob=1&x").fields.at("x-hone-ignored"), "frob, x");
  EXPECT_EQ(send_image(bytes, "image/png", "?top=many").status, 400);
  for (const Json& one : {json["results"][0], json["results"][1], posted["results"][0]}) {
    for (std::size_t k = 0; k < one["classes"].size(); ++k) {
      EXPECT_EQ(one["classes"][k]["name"], want[k].name);
      EXPECT_NEAR(one["classes"][k]["probability"].get<double>(), want[k].probability, 1e-6);
    }
  }
  EXPECT_EQ(json["results"][0]["logits"].size(), 4U);
  const Json models = RawClient(server_->port()).get("/v1/models").json();
  EXPECT_EQ(models["data"][0]["classes"], Json({"oak", "elm", "ash", "fir"}));
  EXPECT_EQ(models["data"][0]["input_shape"], Json({1, 12, 12}));
  EXPECT_EQ(RawClient(server_->port()).get("/v1/models/net").json(), models["data"][0]);
  EXPECT_EQ(RawClient(server_->port()).get("/v1/models/other").status, 404);
}

TEST_F(ModuleServiceTest, names_what_is_wrong_with_a_request) {
  serve(classifier());
  const auto refusal = [this](const Json& body, int status = 400) {
    const HttpAnswer answer = infer(body);
    EXPECT_EQ(answer.status, status) << body;
    return answer.json()["error"]["message"].get<std::string>();
  };
  EXPECT_THAT(refusal({{"inputs", {1}}, {"model", "other"}}, 404), HasSubstr("other"));
  EXPECT_THAT(refusal(Json::object()), HasSubstr("either"));
  EXPECT_THAT(refusal({{"inputs", {1}}, {"images", {"AA=="}}}), HasSubstr("either"));
  EXPECT_THAT(refusal({{"inputs", Json::array()}}), HasSubstr("1 to 256"));
  EXPECT_THAT(refusal({{"inputs", std::vector<int>(257, 1)}}), HasSubstr("1 to 256"));
  EXPECT_THAT(refusal({{"inputs", {{1, 2}}}}), HasSubstr("inputs[0]: expected an input of shape"));
  EXPECT_THAT(refusal({{"images", {"?"}}}), HasSubstr("images[0]"));
  EXPECT_THAT(refusal({{"images", {7}}}), HasSubstr("base64"));
  EXPECT_THAT(refusal({{"images", {"data:image/png,raw"}}}), HasSubstr("base64"));
  EXPECT_THAT(refusal({{"images", {"UDUKMTIgMTIKMjU1Cg=="}}}), HasSubstr("image"));
  EXPECT_THAT(refusal({{"images", {"AA=="}}, {"top", 5}}), HasSubstr("top"));
  EXPECT_THAT(refusal({{"images", {"AA=="}}, {"encoding_format", "hex"}}), HasSubstr("base64"));
  EXPECT_EQ(send_image("no image", "image/png").status, 400);
  EXPECT_EQ(send_image("P5", "text/plain").status, 415);
  EXPECT_EQ(send_image("", "image/png").status, 400);
  EXPECT_EQ(RawClient(server_->port()).get("/v1/infer").status, 405);
  EXPECT_EQ(RawClient(server_->port()).get("/").status, 404);
  EXPECT_EQ(RawClient(server_->port()).get("/readyz").status, 200);
}

TEST_F(ModuleServiceTest, says_what_the_model_says_of_an_input) {
  serve(open_served_module(write_script(kCode)));
  const HttpAnswer answer = infer({{"inputs", {{1, 2, 3}, {1, 2, 3, 4}}}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("inputs[1]"));
  EXPECT_EQ(answer.json()["error"]["code"], "invalid_input");
  EXPECT_EQ(answer.body.find('\n'), answer.body.size() - 1) << "no backtrace";
  EXPECT_EQ(send_image("P5", "image/png").status, 415) << "a script takes no images";
  EXPECT_THAT(infer({{"images", {"AA=="}}}).body, HasSubstr("tensors only"));
}

TEST_F(ModuleServiceTest, opens_only_scripts_of_one_tensor) {
  const auto error = [this](const std::string& code) {
    const fs::path file = write_script(code);
    return test::refusal([&] { open_served_module(file); }, ErrorCategory::Unsupported);
  };
  EXPECT_THAT(error("def forward(self, x, y):\n    return x + y\n"), HasSubstr("2 arguments"));
  EXPECT_THAT(error("def other(self, x):\n    return x\n"), HasSubstr("without forward()"));
  EXPECT_THAT(error("def forward(self, x):\n    return [x]\n"), HasSubstr("Tensor[]"));
  EXPECT_THAT(error("def forward(self, x: int):\n    return self.weight * x\n"), HasSubstr("int"));
  // What is wrong with every input is the model.
  serve(
      open_served_module(write_script("def forward(self, x, scale: float=2.0):\n"
                                      "    return (x * scale).sum()\n")));
  const HttpAnswer answer = infer({{"inputs", {{1}}}});
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("rows"));
}

// A model that waits until it may go on.
struct Gate {
  std::atomic<int> calls{0};
  std::latch open{1};

  ServedModule module() {
    return {.module = nn::ModuleCall(std::make_shared<torch::nn::Module>(),
                                     [this](const Tensor& x) {
                                       ++calls;
                                       open.wait();
                                       return x + 1;
                                     }),
            .kind = "torchscript"};
  }
  void wait_for_call() const {
    while (calls == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

TEST_F(ModuleServiceTest, refuses_what_would_wait_beyond_the_queue) {
  Gate gate;
  serve(gate.module(), {.max_batch = 1, .max_wait_ms = 0, .max_queue = 2});
  auto first = std::async(std::launch::async, [this] { return infer({{"inputs", {{1}}}}); });
  gate.wait_for_call();
  auto second = std::async(std::launch::async, [this] { return infer({{"inputs", {{1}, {2}}}}); });
  while (metric("hone_inputs_waiting") < 2) std::this_thread::yield();
  const HttpAnswer third = infer({{"inputs", {{1}}}});
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(third.json()["error"]["code"], "queue_full");
  EXPECT_GE(std::atoi(third.fields.at("retry-after").c_str()), 1);
  EXPECT_EQ(infer({{"inputs", {{1}, {2}, {3}}}}).status, 400) << "never fits";
  gate.open.count_down();
  EXPECT_EQ(first.get().status, 200);
  EXPECT_EQ(second.get().json()["results"][1]["output"], Json({3}));
  EXPECT_EQ(metric("hone_inputs_running") + metric("hone_inputs_waiting"), 0);
}

TEST_F(ModuleServiceTest, cancels_the_inputs_of_a_client_that_is_gone) {
  Gate gate;
  serve(gate.module(), {.max_batch = 1, .max_wait_ms = 0});
  auto first = std::async(std::launch::async, [this] { return infer({{"inputs", {{1}}}}); });
  gate.wait_for_call();
  {
    RawClient gone(server_->port());
    gone.send(RawClient::post_text("/v1/infer", R"({"inputs": [[1], [2], [3]]})"));
    while (metric("hone_inputs_waiting") < 3) std::this_thread::yield();
  }
  while (metric("hone_inputs_waiting") > 0) std::this_thread::yield();
  EXPECT_EQ(metric("hone_inputs_cancelled_total"), 3);
  gate.open.count_down();
  EXPECT_EQ(first.get().status, 200);
  EXPECT_EQ(gate.calls, 1);
}

// Three numbers would be a row of three, and a batch of them right.
TEST_F(ModuleServiceTest, inputs_that_are_wrong_alone_are_wrong_together) {
  serve(open_served_module(write_script(kCode)), {.max_wait_ms = 20, .tests_shapes = true});
  EXPECT_EQ(infer({{"inputs", {1, 2, 3}}}).status, 400);
  EXPECT_EQ(infer({{"inputs", {{1, 2, 3}, {4, 5, 6}}}}).json()["results"][0]["batch"], 2);
}

TEST_F(ModuleServiceTest, ends_after_what_runs_and_cancels_what_waits) {
  Gate gate;
  serve(gate.module(), {.max_batch = 1, .max_wait_ms = 0});
  auto first = std::async(std::launch::async, [this] { return infer({{"inputs", {{1}}}}); });
  gate.wait_for_call();
  auto second = std::async(std::launch::async, [this] { return infer({{"inputs", {{2}}}}); });
  while (metric("hone_inputs_waiting") < 1) std::this_thread::yield();
  std::thread stopper([this] { server_->stop(); });
  const HttpAnswer cancelled = second.get();
  EXPECT_EQ(cancelled.status, 503);
  EXPECT_TRUE(cancelled.fields.contains("retry-after"));
  gate.open.count_down();
  EXPECT_EQ(first.get().json()["results"][0]["output"], Json({2}));
  stopper.join();
}

}  // namespace
}  // namespace hone::app
