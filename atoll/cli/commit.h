#pragma once
// The only file that a new commit changes is commit.cpp, which the build writes
// (cmake/commit.cmake).

namespace atl::cli {

/// "0186c63e1f2a", with " and changes" where the source differed from it; "unknown" without git.
extern const char* const kCommit;

}  // namespace atl::cli
