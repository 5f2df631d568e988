// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "hone/core/file/json_io.h"
#include "hone/core/thread/executor.h"
#include "hone/infer/engine.h"
#include "hone/infer/sampling_choice.h"
#include "hone/text/chat_template/chat_template.h"

namespace hone::app {

struct ChatOptions {
  std::filesystem::path model;
  std::filesystem::path chat_template;  // a Jinja file instead of the model's own template
  infer::EngineOptions engine;          // Chat sets the executor
  infer::Request request;               // Chat sets its tokens and resolves its sampling
  infer::SamplingChoice sampling;
  std::string system;               // the system message; empty for none
  Json tools = Json();              // definitions for the template
  Json variables = Json::object();  // names for the template, such as enable_thinking
};

// A conversation with a model in the words of its chat template.
class Chat {
 public:
  // Throws what opening a model throws, and Error{Unsupported} if it has no chat template.
  Chat(const ChatOptions& options, Executor& executor);

  // Adds a message of the user and generates the answer. `on_text` gets each piece. A stop request
  // ends the answer, which stays as it is. If the conversation does not fit into the context, or
  // the template refuses it, throws Error{InvalidArgument} and forgets the message.
  infer::Result answer(const std::string& message,
                       const std::function<void(std::string_view)>& on_text = {},
                       const std::stop_token& stop = {});
  // Forgets all messages but the system's.
  void clear();

 private:
  ChatOptions options_;
  std::unique_ptr<infer::Engine> engine_;
  std::shared_ptr<const text::ChatTemplate> template_;
  Json messages_ = Json::array();
};

}  // namespace hone::app
