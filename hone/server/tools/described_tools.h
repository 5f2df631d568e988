// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/server/tools/tool_format.h"
#include "hone/text/chat_template/chat_template.h"

namespace hone::server {

// Turns tools, calls and their results into plain messages, for templates that know none: the tools
// and the format of calls go into a system message, results into messages of the user.
void describe_tools(text::Conversation& conversation, const ToolFormat& format);

}  // namespace hone::server
