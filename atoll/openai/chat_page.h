#pragma once
// The page at /: a chat in the browser, in one file that needs nothing from elsewhere.
#include <string_view>

namespace atl::openai {

/// HTML.
std::string_view chat_page();

}  // namespace atl::openai
