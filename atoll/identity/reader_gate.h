#pragma once
// Who may read how a run goes, from anywhere: its members, by their certificates, and whoever has a
// reader's token. Strangers guess a few times, then wait. Thread-safe.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "atoll/base/mutex.h"
#include "atoll/identity/events.h"
#include "atoll/identity/guess_limit.h"
#include "atoll/identity/invite_book.h"
#include "atoll/identity/registrar.h"
#include "atoll/identity/wall_time.h"
#include "atoll/identity/wipe.h"

namespace atl::identity {

/// The token in the value of an HTTP header "Authorization": of "Bearer TOKEN", or of "Basic" the
/// password with any user's name, which is how browsers ask for it. Empty where there is none.
Secret token_in(std::string_view authorization);

class ReaderGate {
 public:
  enum class Answer : uint8_t { kMayRead, kUnknown, kHeldBack };
  /// Why a certificate that the authority signed is not believed (any more); empty where it is.
  using Objection = std::function<std::string(const CertificateFacts&)>;

  ReaderGate(std::filesystem::path invite_file, Objection objection)
      : book_(std::move(invite_file)), objection_(std::move(objection)) {}

  /// `authorization` is the header's value, empty where a request has none. That is no guess: a
  /// browser asks first without. Throws InputError where the book cannot be read.
  Answer answer(const Caller& caller, std::string_view authorization, WallTime now);

  /// What to tell of those that were refused since it was last asked, if there were any.
  std::optional<ReadersRefused> news(WallTime now);

 private:
  bool is_member(const CertificateFacts& facts) const;
  void count_refusal(const Caller& caller) ATOLL_REQUIRES(mutex_);

  const InviteBook book_;
  const Objection objection_;
  Mutex mutex_;
  GuessLimit guesses_ ATOLL_GUARDED_BY(mutex_);
  ReadersRefused refused_ ATOLL_GUARDED_BY(mutex_);
  int64_t num_told_ ATOLL_GUARDED_BY(mutex_) = 0;
  WallTime told_ ATOLL_GUARDED_BY(mutex_);
};

}  // namespace atl::identity
