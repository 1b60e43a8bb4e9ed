#pragma once
// The status of a run for readers on other machines, over HTTPS.
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/coordinator/status_board.h"
#include "atoll/net/http_server.h"
#include "atoll/run/run_authority.h"

namespace atl::cli {

/// At `where` (--https), for who may read (identity/reader_gate.h). `names` are further hosts by
/// which it is asked. All must outlive the server. Throws UsageError, InputError.
std::unique_ptr<net::HttpServer> serve_readers(const std::string& where,
                                               const std::vector<std::string>& names,
                                               run::RunAuthority& authority,
                                               const swarm::StatusBoard& board, const Clock& clock);

}  // namespace atl::cli
