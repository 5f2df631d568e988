// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/infer/request.h"
#include "hone/server/api/fields.h"
#include "hone/server/api/text_service.h"
#include "hone/text/chat_template/chat_template.h"

namespace hone::server {

// Reads `messages` of the chat API as a template takes them: text parts are joined, "developer"
// becomes "system", arguments of tool calls become objects. Throws ApiError that names the message.
Json read_messages(Fields& fields);

// The prompt of a conversation in the words of the model's template. A template that refuses system
// messages gets their text in front of the first user message. If the last message is an answer, it
// is continued. Throws ApiError{400} without a template, and with the template's own refusal.
std::vector<text::TextSegment> render_prompt(const TextService& service,
                                             const text::Conversation& conversation);

// The ids of a rendered prompt.
std::vector<infer::TokenId> prompt_ids(const TextService& service,
                                       const std::vector<text::TextSegment>& segments);

}  // namespace hone::server
