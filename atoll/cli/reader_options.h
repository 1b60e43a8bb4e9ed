#pragma once
// How `atoll status https://...` shows who it is, and by what it knows the server.
#include <memory>
#include <string>

#include "atoll/net/https.h"

namespace CLI {
class App;
}

namespace atl::cli {

struct ReaderOptions {
  std::string token;        // "-" or @FILE.
  std::string run;          // A folder: a member's, or that of a run that was created.
  std::string authority;    // A file.
  std::string fingerprint;  // Of the authority.

  bool any() const { return !(token + run + authority + fingerprint).empty(); }
};

void add_reader_options(CLI::App& command, ReaderOptions& options);

/// Throws UsageError where they say too little, or contradict each other; InputError where a file
/// cannot be read.
std::shared_ptr<const net::HttpsIdentity> https_identity(const ReaderOptions& options);

}  // namespace atl::cli
