#include "atoll/run/relayed_run.h"

#include <chrono>
#include <utility>

namespace atl::run {

RelayedRun::RelayedRun(const std::filesystem::path& folder, const Clock& clock, EventSink tell)
    : name_(certified_peer(folder).name),
      tell_(std::move(tell)),
      certificate_(folder, joined_coordinator(folder), clock, tell_) {}

RelayedRun::~RelayedRun() { is_ending_ = true; }

void RelayedRun::seek(Duration patience, std::function<bool()> cancelled) {
  sought_ = std::async(std::launch::async, [this, patience, cancelled = std::move(cancelled)] {
    return certificate_.seek_coordinator(patience, [&] { return is_ending_ || cancelled(); });
  });
}

void RelayedRun::tick(net::Transport& transport, Time now,
                      const std::function<std::string(const std::string&)>& address) {
  if (!post_) {
    if (sought_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    const std::string coordinator = sought_.get();
    address_ = address(coordinator);
    post_.emplace(
        RelayPostOptions{
            .coordinator = coordinator,
            .authority = trust()->run(),
            .name = name_,
            .address = address_,
            .tell = tell_,
            .on_revocations = [this](const Bytes& list) { certificate_.take_revocations(list); }},
        transport);
  }
  post_->tick(now);
}

void RelayedRun::handle(const net::Event& event, Time now) {
  if (post_) post_->handle(event, now);
}

std::string RelayedRun::taken_at() const {
  return post_ && post_->is_taken() ? address_ : std::string();
}

std::optional<Result<std::string>> RelayedRun::end() const {
  if (post_ && post_->refused()) return failure(*post_->refused());
  if (post_ && post_->over()) return *post_->over();
  return std::nullopt;
}

}  // namespace atl::run
