#pragma once
// What a directory tells of the servers of models' layers, and what they and gateways tell of their
// directory (base/event.h).
#include <cstdint>
#include <string>

#include "atoll/base/event.h"

namespace atl::chain {

// --- the directory ---

struct ServerCame {
  static constexpr const char* kKind = "server_came";
  std::string server;
  std::string address;
  std::string model;
  void visit(auto&& field) const {
    field("server", server), field("address", address), field("model", model);
  }
  std::string sentence() const;
};

/// It is told to serve these layers.
struct ServerPlaced {
  static constexpr const char* kKind = "server_placed";
  std::string server;
  int64_t first = 0;  // Layer.
  int64_t last = 0;
  std::string reason;  // "waits", "gap", "balance"
  void visit(auto&& field) const {
    field("server", server), field("first", first), field("last", last), field("reason", reason);
  }
  std::string sentence() const;
};

struct ServerServes {
  static constexpr const char* kKind = "server_serves";
  std::string server;
  int64_t first = 0;
  int64_t last = 0;
  void visit(auto&& field) const {
    field("server", server), field("first", first), field("last", last);
  }
  std::string sentence() const;
};

struct ServerGone {
  static constexpr const char* kKind = "server_gone";
  std::string server;
  std::string reason;
  void visit(auto&& field) const { field("server", server), field("reason", reason); }
  std::string sentence() const;
};

/// It did not do what it was told to.
struct ServerIdle {
  static constexpr const char* kKind = "server_idle";
  std::string server;
  void visit(auto&& field) const { field("server", server); }
  std::string sentence() const;
};

struct OfferRefused {
  static constexpr const char* kKind = "offer_refused";
  std::string server;
  std::string reason;
  void visit(auto&& field) const { field("server", server), field("reason", reason); }
  std::string sentence() const;
};

/// By a gateway: it does not compute what its model says.
struct ServerReported {
  static constexpr const char* kKind = "server_reported";
  std::string server;
  std::string gateway;  // Empty in the clear.
  std::string reason;
  void visit(auto&& field) const {
    field("server", server), field("gateway", gateway), field("reason", reason);
  }
  std::string sentence() const;
};

/// All layers are served.
struct ModelWhole {
  static constexpr const char* kKind = "model_whole";
  std::string model;
  int64_t servers = 0;
  void visit(auto&& field) const { field("model", model), field("servers", servers); }
  std::string sentence() const;
};

/// Some layers are served by nobody, after all were.
struct ModelTorn {
  static constexpr const char* kKind = "model_torn";
  std::string model;
  int64_t missing = 0;  // Layers.
  void visit(auto&& field) const { field("model", model), field("missing", missing); }
  std::string sentence() const;
};

// --- a server or a gateway ---

struct DirectoryReached {
  static constexpr const char* kKind = "directory_reached";
  std::string coordinator;
  void visit(auto&& field) const { field("coordinator", coordinator); }
  std::string sentence() const;
};

/// The coordinator is tried again and again.
struct DirectoryMissed {
  static constexpr const char* kKind = "directory_missed";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const;
};

/// No coordinator has answered yet, for some seconds. It is tried again and again.
struct DirectoryUnanswered {
  static constexpr const char* kKind = "directory_unanswered";
  std::string coordinator;
  std::string reason;
  void visit(auto&& field) const { field("coordinator", coordinator), field("reason", reason); }
  std::string sentence() const;
};

/// The coordinator does not take what is offered. It is tried again.
struct DirectoryRefused {
  static constexpr const char* kKind = "directory_refused";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const;
};

// --- a gateway ---

/// It is not used any more, and reported.
struct LiarFound {
  static constexpr const char* kKind = "liar_found";
  std::string server;
  std::string reason;
  void visit(auto&& field) const { field("server", server), field("reason", reason); }
  std::string sentence() const;
};

/// Nothing can be recomputed.
struct AuditsFail {
  static constexpr const char* kKind = "audits_fail";
  std::string reason;
  void visit(auto&& field) const { field("reason", reason); }
  std::string sentence() const;
};

}  // namespace atl::chain
