// SPDX-License-Identifier: Apache-2.0
// Prompts against jinja2, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "hone/core/file/json_io.h"
#include "hone/text/chat_template/chat_template.h"
#include "tests/support/error_of.h"
#include "tests/support/peer.h"
#include "tests/support/real_models.h"
#include "tests/support/test_data.h"

namespace hone::text {
namespace {

namespace fs = std::filesystem;

Conversation conversation_of(const Json& test, const Json& answer) {
  return {.messages = test["messages"],
          .tools = test["tools"],
          .variables = test["variables"],
          .add_generation_prompt = test["add_generation_prompt"].get<bool>(),
          .now = answer["now"].get<std::time_t>()};
}

std::string spelled(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

class ChatTemplatePeer : public testing::Test {
 protected:
  static Json ask(const std::vector<std::string>& gguf_files) {
    const test::TemporaryFolder folder;
    const fs::path out = folder.path() / "out.json";
    std::vector<std::string> arguments = {test::source_file("tests/text/chat_templates").string()};
    arguments.insert(arguments.end(), gguf_files.begin(), gguf_files.end());
    arguments.push_back(out.string());
    test::run_peer("tests/text/peer_chat.py", arguments);
    return read_json_file(out);
  }

  // Whether hone gives the text of this case, or refuses it as jinja2 does.
  void compare(const Json& test, const Json& answer) {
    const auto name = test["template"].get<std::string>();
    const auto source = answer["templates"][name].get<std::string>();
    std::string text;
    const std::string error = test::error_of([&] {
      if (!compiled_.contains(name)) {
        compiled_.emplace(name, ChatTemplate(source, answer["special_tokens"]));
      }
      text = joined_text(compiled_.at(name).render(conversation_of(test, answer)));
    });
    const bool renders = error == "no error";
    if (test.contains("exception") ? !renders : renders && text == test["text"]) return;
    if (++differ_ > kMostReports) return;
    ADD_FAILURE() << name << ": " << spelled(source.substr(0, 200)) << "\n  jinja2: "
                  << (test.contains("text") ? spelled(test["text"]) : test["exception"].dump())
                  << "\n  hone:   " << (renders ? spelled(text) : error);
  }

  static constexpr int kMostReports = 5;
  std::map<std::string, ChatTemplate> compiled_;
  int differ_ = 0;
};

TEST_F(ChatTemplatePeer, jinja2_gives_the_same_prompts) {
  HONE_REQUIRE_PEER("jinja2");
  const bool reads_gguf = test::missing_peer({"gguf"}).empty();
  const Json answer = ask(reads_gguf ? test::real_models() : std::vector<std::string>());
  ASSERT_GE(answer["cases"].size(), 1300u);
  std::map<std::string, int> rendered;  // by template
  for (const Json& test : answer["cases"]) {
    compare(test, answer);
    rendered[test["template"].get<std::string>()] += test.contains("text") ? 1 : 0;
  }
  EXPECT_EQ(differ_, 0) << "of " << answer["cases"].size();
  for (const char* name : {"chatml", "deepseek", "gemma", "llama3", "mistral", "phi"}) {
    EXPECT_GT(rendered[std::string(name) + ".jinja"], 50) << name;
  }
}

}  // namespace
}  // namespace hone::text
