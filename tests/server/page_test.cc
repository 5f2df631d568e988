// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/server/stories_server.h"

namespace hone::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class PageOfServer : public StoriesServer {};

TEST_F(PageOfServer, refers_to_nothing_outside_and_needs_no_key) {
  server::ServerOptions options;
  options.keys = {{"ann", "key-of-ann"}};
  open(options);
  if (!server_) return;
  const HttpAnswer page = RawClient(port()).get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.fields.at("content-type"), HasSubstr("text/html"));
  const std::string& policy = page.fields.at("content-security-policy");
  for (const char* part : {"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"}) {
    EXPECT_THAT(policy, HasSubstr(part));
  }
  for (const char* reference : {"http:", "https:", "src=", "url(", "@import", "//cdn"}) {
    EXPECT_THAT(page.body, Not(HasSubstr(reference)));
  }
  // What the page asks for needs the key.
  EXPECT_EQ(RawClient(port()).get("/metrics").status, 401);
}

// The names that the script of the page reads.
TEST_F(PageOfServer, reads_metrics_that_exist) {
  open();
  if (!server_) return;
  const std::string page = RawClient(port()).get("/").body;
  const std::string metrics = RawClient(port()).get("/metrics").body;
  int names = 0;
  for (std::size_t at = page.find(".hone_"); at != page.npos; at = page.find(".hone_", at + 1)) {
    const std::size_t end = page.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at + 1);
    const std::string name = page.substr(at + 1, end - at - 1);
    EXPECT_THAT(metrics, HasSubstr("\n" + name + " ")) << name;
    ++names;
  }
  EXPECT_GE(names, 6);
}

}  // namespace
}  // namespace hone::test
