// SPDX-License-Identifier: Apache-2.0
// `hone serve` as a process, and `hone chat`.
#include <csignal>
#include <fstream>

#include "hone/core/check.h"
#include "tests/cli/cli_fixture.h"
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
