#pragma once
#include <c10/util/Exception.h>

#include <string>

namespace atl::model {

/// What LibTorch says went wrong, without its page of stack.
inline std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

}  // namespace atl::model
