// SPDX-License-Identifier: Apache-2.0
// `hone serve` as a process, and `hone chat`.
#include <csignal>
#include <fstream>

#include "hone/core/check.h"
#include "tests/cli/cli_fixture.h"
#include "tests/server/http_client.h"
#include "tests/support/image_files.h"
#include "tests/support/peer.h"
#include "tests/support/real_models.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Serve : public Cli {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  std::string template_file() const {
    return file("t.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  }
  // The port once the server listens.
  std::string port() const {
    EXPECT_TRUE(wait_until([&] { return fs::exists(path("port")); }));
    std::string text;
    std::getline(std::ifstream(path("port")), text);
    return text;
  }
};

TEST_F(Serve, says_where_it_listens_and_ends_with_the_signal) {
  Program server(hone_argv(
      {"serve", write_tiny_model(), "--port", "0", "--port-file", path("port"), "--json"}));
  const std::string number = port();
  server.send(SIGTERM);
  const ProgramResult result = server.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  const Json ready = parse_json(result.out, "stdout");
  EXPECT_EQ(concat(ready["port"].get<int>()), number);
  EXPECT_EQ(ready["model"], "hf");
  EXPECT_EQ(ready["chat_template"], false);
}

TEST_F(Serve, refuses_what_cannot_be_served) {
  const std::string model = write_tiny_model();
  expect_refusal({"serve", path("nothing")}, 3);
  expect_refusal({"serve", model, "--host", "0.0.0.0"}, 2, "--api-key-file");
  expect_refusal({"serve", model, "--port", "70000"}, 2, "--port");
  expect_refusal({"serve", model, "--api-key-file", path("none")}, 3);
  expect_refusal({"serve", model, "--api-key-file", file("keys", "short\n")}, 3, "line 1");
  expect_refusal({"serve", model, "--chat-template", file("t", "{% if %}")}, 3, "Line 1");
}

// Runs a script against each real model behind a server.
void expect_ok(const std::string& script, const std::string& port_file) {
  for (const std::string& model : real_models()) {
    fs::remove(port_file);
    Program server(hone_argv({"serve", model, "--port", "0", "--port-file", port_file}));
    ASSERT_TRUE(wait_until([&] { return fs::exists(port_file); }));
    std::string port;
    std::getline(std::ifstream(port_file), port);
    EXPECT_EQ(run_peer(script, {concat("http://127.0.0.1:", port)}), "ok\n") << model;
    server.send(SIGINT);
    EXPECT_EQ(server.wait().status, 0);
  }
}

TEST_F(Serve, clients_of_openai_get_what_they_ask_for) {
  if (real_models().empty()) GTEST_SKIP() << "no real models in ~/.cache/hone-models";
  HONE_REQUIRE_PEER("openai");
  expect_ok("tests/server/clients.py", path("port"));
}

TEST_F(Serve, clients_of_responses_embeddings_and_messages_do) {
  if (real_models().empty()) GTEST_SKIP() << "no real models in ~/.cache/hone-models";
  HONE_REQUIRE_PEER("openai", "anthropic");
  expect_ok("tests/server/clients_more.py", path("port"));
}

TEST_F(Serve, clients_of_langchain_get_calls_and_objects) {
  if (real_models().empty()) GTEST_SKIP() << "no real models in ~/.cache/hone-models";
  HONE_REQUIRE_PEER("openai", "langchain_openai");
  expect_ok("tests/server/clients_langchain.py", path("port"));
}

// Each of the other clients asks what the agent has asked once, without its cache.
TEST_F(Serve, an_agent_reuses_what_it_has_sent_and_gets_the_same_answers) {
  const std::vector<std::string> models = real_models();
  const auto model = std::ranges::find_if(
      models, [](const std::string& name) { return name.find("Coder") != std::string::npos; });
  if (model == models.end()) GTEST_SKIP() << "no model for code in ~/.cache/hone-models";
  HONE_REQUIRE_PEER("urllib");
  constexpr int kClients = 16;
  std::string lines;
  Arguments keys;
  for (int i = 0; i < kClients; ++i) {
    keys.push_back(concat("key-of-client-", i));
    lines += concat("client", i, ":", keys.back(), "\n");
  }
  Program server(hone_argv({"serve", *model, "--port", "0", "--port-file", path("port"),
                            "--api-key-file", file("keys", lines)}));
  const Arguments arguments = Arguments{concat("http://127.0.0.1:", port())} + keys;
  EXPECT_EQ(run_peer("tests/server/agent_trace.py", arguments), "ok\n");
  server.send(SIGINT);
  EXPECT_EQ(server.wait().status, 0);
}

// lm-eval is apart from the other peers, which need fewer packages.
TEST_F(Serve, lm_eval_scores_as_the_engine_does) {
  if (real_models().empty()) GTEST_SKIP() << "no real models in ~/.cache/hone-models";
  HONE_REQUIRE_PEER("lm_eval");
  for (const std::string& model : real_models()) {
    fs::remove(path("port"));
    Program server(hone_argv({"serve", model, "--port", "0", "--port-file", path("port")}));
    const std::string out =
        run_peer("tests/server/lm_eval_scores.py",
                 {concat("http://127.0.0.1:", port()), hone_argv({})[0], model});
    EXPECT_TRUE(out.starts_with("ok")) << out;
    server.send(SIGINT);
    EXPECT_EQ(server.wait().status, 0);
  }
}

TEST_F(Serve, the_bench_measures_servers_from_outside) {
  HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
  Program server(
      hone_argv({"serve", model.string(), "--tokenizer", model.parent_path() / "tok512.bin",
                 "--port", "0", "--port-file", path("port")}));
  const std::string url = concat("http://127.0.0.1:", port());
  const Json report =
      json_of({"bench", "serve", concat("a=", url, "/v1"), concat("b=", url), "--streams", "2",
               "--prompt", "3", "--tokens", "4", "--prefix", "8", "--repeat", "5"});
  std::map<std::string, int> cases;
  for (const Json& row : report["rows"]) {
    ++cases[row["case"].get<std::string>()];
    if (row["case"] == "x2/p3/t4") {
      EXPECT_GT(row["tokens_per_s"], 0);
    }
    if (!row.contains("first_token_ms")) continue;
    EXPECT_GT(row["first_token_ms"], 0);
    EXPECT_LE(row["first_token_ms"], row["p99_first_token_ms"]);
    EXPECT_GT(row["prompt_tokens"], 0);
  }
  EXPECT_EQ(
      cases,
      (std::map<std::string, int>{
          {"x2/p3/t4", 2}, {"x2/p3/t4/latency", 2}, {"x2/prefix8", 2}, {"x2/prefix8/latency", 2}}));
  EXPECT_EQ(report["ratios"].size(), 2U);
  server.send(SIGINT);
  EXPECT_EQ(server.wait().status, 0);
  expect_refusal({"bench", "serve", "ftp://127.0.0.1"}, 2, "http");
  expect_refusal({"bench", "serve", concat(url, "/v1")}, 1, "cannot be reached");
}

TEST_F(Serve, classifies_images_as_classify_does) {
  if (!has_libtorch()) GTEST_SKIP() << "built without LibTorch";
  write_bar_folder(path("data"), 12, 3, 60, 15);
  const ProgramResult trained = run_hone({"train", "vision", "-q", "--data", path("data"), "--out",
                                          path("run"), "--threads", "1", "--set", "model.name=mlp",
                                          "--set", "model.width=8", "--set", "trainer.steps=4"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string model = path("run/model");
  const std::string bytes = "P5\n12 12\n255\n" + bar_picture(12, 3, 77);
  const std::string image = file("bar.pgm", bytes);
  Program server(hone_argv({"serve", model, "--port", "0", "--port-file", path("port"), "--name",
                            "bars", "--max-batch", "4", "--json"}));
  RawClient client(std::stoi(port()));
  client.send(concat("POST /v1/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/x-pgm\r\n",
                     "Content-Length: ", bytes.size(), "\r\n\r\n", bytes));
  const Json answer = client.read().json();
  EXPECT_EQ(answer["model"], "bars");
  const Json want = json_of({"classify", model, image})["images"][0]["classes"];
  const Json got = answer["results"][0]["classes"];
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    EXPECT_EQ(got[k]["name"], want[k]["name"]);
    EXPECT_NEAR(got[k]["probability"].get<double>(), want[k]["probability"].get<double>(), 1e-6);
  }
  server.send(SIGTERM);
  const ProgramResult result = server.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(parse_json(result.out, "stdout")["kind"], "classifier");
  expect_refusal({"serve", model, "--ctx", "64"}, 2, "language models");
  expect_refusal({"serve", write_tiny_model(), "--max-batch", "4"}, 2, "TorchScript");
  expect_refusal({"serve", file("net.pt", "PK\3\4rest")}, 3, "TorchScript");
}

TEST_F(Serve, chat_keeps_the_conversation_and_reuses_it) {
  const std::vector<std::string> models = real_models();
  if (models.empty()) GTEST_SKIP() << "no real models in ~/.cache/hone-models";
  for (const std::string& model : models) {
    const Json turns = json_of({"chat", model, "--temp", "0", "-n", "40", "-p",
                                "My name is Ada. Say hello.", "-p", "What is my name?"})["turns"];
    ASSERT_EQ(turns.size(), 2U);
    // The smallest of the models does not remember a name.
    const bool is_small = model.find("135M") != std::string::npos;
    EXPECT_THAT(turns[1]["text"].get<std::string>(), HasSubstr(is_small ? "" : "Ada")) << model;
    EXPECT_GT(turns[1]["cached_tokens"], 0) << model;
  }
}

TEST_F(Serve, chat_needs_a_template) {
  const std::string model = write_tiny_model();
  expect_refusal({"chat", model, "-p", "a"}, 4, "chat template");
  const Json turns = json_of({"chat", model, "--chat-template", template_file(), "-n", "3", "-p",
                              "ab", "--seed", "1"})["turns"];
  EXPECT_EQ(turns[0]["message"], "ab");
}

}  // namespace
}  // namespace hone::test
