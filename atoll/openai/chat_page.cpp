#include "atoll/openai/chat_page.h"

namespace atl::openai {
namespace {

constexpr std::string_view kPage =
#include "atoll/openai/chat_page.inc"
    ;

}  // namespace

std::string_view chat_page() { return kPage; }

}  // namespace atl::openai
