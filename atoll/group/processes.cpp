#include "atoll/group/processes.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/process_lost.h"
#include "atoll/group/answer_timer.h"
#include "atoll/group/backend.h"
#include "atoll/group/meeting.h"
#include "atoll/group/roll_call.h"
#include "atoll/group/watch.h"
#include "atoll/model/spilled_tensor.h"
#include "atoll/model/torch_error.h"

namespace atl::group {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Work = c10::intrusive_ptr<c10d::Work>;

/// Of what is summed or sent at a time: several are under way at once.
constexpr int64_t kBucketBytes = 25 << 20;
constexpr Duration kSlice = milliseconds(500);
constexpr Duration kLookAgain = microseconds(100);
/// For the others to hear that the work is done.
constexpr Duration kGoodbye = milliseconds(5000);
/// Who notices that process 0 is silent, but can ask the store still, says more.
constexpr Duration kMargin = milliseconds(5000);
constexpr const char* kEndedEarly = "before the work was done; what it says itself is why";
constexpr const char* kDone = "!";  // Else a command begins with '.'.

std::string command_key(int64_t number) { return fmt::format("command/{}", number); }

std::string first_line(const std::exception& error) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  return torch != nullptr ? model::first_line(*torch) : error.what();
}

/// No thread that waits for the store can be ended: the program does.
void leave_silent_store(const run::ProcessPlace& place, Duration silence) {
  fmt::print(stderr,
             "atoll: process 0 of this island ({}:{}), which leads, gave no sign of life for "
             "{:.0f} s\n",
             place.address, place.port, seconds(silence));
  std::fflush(stderr);
  ::_exit(kProcessLostStatus);
}

}  // namespace

class Processes::Shell {
 public:
  Shell(const ProcessesOptions& options, const Clock& clock)
      : place_(options.place),
        clock_(clock),
        timer_(options.timeout + kMargin, clock,
               [place = place_](Duration silence) { leave_silent_store(place, silence); }),
        store_(open_store(place_, options.timeout)) {
    try {
      wait_for_all(*store_, place_, options.timeout, clock_, timer_);
      backend_ = make_backend(c10::make_intrusive<c10d::PrefixStore>("backend", store_), place_,
                              options.timeout);
    } catch (const c10::Error& error) {
      throw InputError(fmt::format("process {} of {} lost the others while they met at {}:{}: {}",
                                   place_.rank, place_.size, place_.address, place_.port,
                                   first_line(error)));
    }
    watch_.emplace(connect_again(place_, options.timeout), place_, options.timeout, clock_, timer_);
  }

  ~Shell() {
    if (!is_over_ && place_.leads()) {
      watch_->leave(kEndedEarly);
    } else if (!is_over_) {
      say_goodbye();
    } else if (watch_ && place_.leads()) {
      watch_->let_others_hear();
    }
    watch_.reset();
    timer_.stop();
    // It would wait for what is under way; with a process that hangs that does not end.
    if (has_lost_) backend_.release();
  }

  const run::ProcessPlace& place() const { return place_; }

  void tell(const std::string& text) {
    ATOLL_CHECK(place_.leads());
    guarded([&] {
      // A command is old when all have heard a later one.
      for (; num_forgotten_ + 1 < num_heard_by_all_; ++num_forgotten_) {
        store_->deleteKey(command_key(num_forgotten_ + 1));
      }
      write(*store_, command_key(++num_commands_), "." + text);
    });
  }

  std::optional<std::string> hear() {
    ATOLL_CHECK(!place_.leads());
    std::optional<std::string> text;
    guarded([&] {
      ++num_commands_;
      while (!text) {
        text = read(*store_, command_key(num_commands_), kSlice);
        if (!text) require_all();
      }
    });
    if (*text != kDone) return text->substr(1);
    say_goodbye();
    is_over_ = true;
    return std::nullopt;
  }

  void ready() {
    guarded([&] { store_->add(fmt::format("ready/{}", num_commands_), 1); });
  }

  void wait_until_ready() {
    guarded([&] {
      const std::string key = fmt::format("ready/{}", num_commands_);
      while (store_->add(key, 0) < place_.size - 1) {
        require_all();
        std::this_thread::sleep_for(milliseconds(1));
      }
      store_->deleteKey(key);
    });
    all_have_heard();
  }

  void done() {
    ATOLL_CHECK(place_.leads());
    if (!std::exchange(is_over_, true)) say_goodbye();
  }

  void fail(const std::string& reason) {
    if (std::exchange(is_over_, true)) return;
    has_lost_ = true;  // A pass may be on its way, and the others' parts of it.
    watch_->leave(reason);
  }

  /// What `act` has the backend begin.
  std::vector<Work> begun(const std::function<void(std::vector<Work>&)>& act) {
    std::vector<Work> works;
    guarded([&] { act(works); });
    return works;
  }
  void await(const std::vector<Work>& works) {
    guarded([&] {
      for (const Work& work : works) wait(work);
    });
  }

  /// Process 0 has something of all others that they sent after the last command. A broadcast is no
  /// sign of that: it may be on its way still.
  void all_have_heard() { num_heard_by_all_ = num_commands_; }

  c10d::Backend& backend() { return *backend_; }

 private:
  [[noreturn]] static void end_by(const Verdict& verdict) {
    if (verdict.is_lost) throw ProcessLost(verdict.text);
    throw InputError(verdict.text);
  }

  void require_all() {
    if (const auto verdict = watch_->verdict()) {
      has_lost_ = true;
      end_by(*verdict);
    }
  }

  void wait(const Work& work) {
    Time next_look = clock_.now() + kSlice;
    while (!work->isCompleted()) {
      std::this_thread::sleep_for(kLookAgain);
      if (clock_.now() < next_look) continue;
      require_all();
      next_look = clock_.now() + kSlice;
    }
    work->wait();  // Throws what went wrong.
  }

  /// Errors of the store and the backend become a sentence that says who was lost.
  void guarded(const std::function<void()>& act) {
    try {
      act();
      return;
    } catch (const InputError&) {
      is_over_ = true;
      throw;
    } catch (const std::exception& error) {
      has_lost_ = true;
      is_over_ = true;
      end_by(watch_->explain(first_line(error)));
    }
  }

  void say_goodbye() {
    try {
      if (!place_.leads()) {
        watch_.reset();  // Before the store goes.
        store_->add("goodbye", 1);
        return;
      }
      write(*store_, command_key(++num_commands_), kDone);
      const Time begin = clock_.now();
      while (store_->add("goodbye", 0) < place_.size - 1 && clock_.now() - begin < kGoodbye &&
             !watch_->verdict()) {
        std::this_thread::sleep_for(milliseconds(1));
      }
    } catch (const std::exception&) {  // NOLINT: whom it concerns is gone.
    }
  }

  const run::ProcessPlace place_;
  const Clock& clock_;
  AnswerTimer timer_;  // Until the last word to the store.
  Store store_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::optional<Watch> watch_;
  int64_t num_commands_ = 0;
  int64_t num_heard_by_all_ = 0;
  int64_t num_forgotten_ = 0;
  bool is_over_ = false;
  bool has_lost_ = false;
};

namespace {

/// Of a contiguous tensor.
std::vector<at::Tensor> buckets_of(const at::Tensor& values) {
  const int64_t most = kBucketBytes / values.element_size();
  std::vector<at::Tensor> buckets;
  for (int64_t begin = 0; begin < values.numel(); begin += most) {
    buckets.push_back(values.slice(0, begin, std::min(begin + most, values.numel())));
  }
  return buckets;
}

}  // namespace

/// On the CPU, as backends want it; what came is put back. The same memory where it is there.
class Transfer::State {
 public:
  State(Processes::Shell& shell, const at::Tensor& values,
        const std::function<Work(std::vector<at::Tensor>& bucket)>& begin)
      : shell_(shell), values_(values), host_(values.is_cpu() ? values : values.cpu()) {
    ATOLL_CHECK(values.is_contiguous());
    works_ = shell_.begun([&](std::vector<Work>& works) {
      for (const at::Tensor& bucket : buckets_of(host_)) {
        std::vector<at::Tensor> one{bucket};
        works.push_back(begin(one));
      }
    });
  }

  void wait() {
    shell_.await(works_);
    works_.clear();
    const at::NoGradGuard no_grad;
    if (!host_.is_same(values_)) values_.copy_(host_);
  }

 private:
  Processes::Shell& shell_;
  const at::Tensor values_;
  const at::Tensor host_;
  std::vector<Work> works_;
};

Transfer::Transfer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Transfer::Transfer(Transfer&&) noexcept = default;
Transfer& Transfer::operator=(Transfer&&) noexcept = default;
Transfer::~Transfer() = default;
void Transfer::wait() { state_->wait(); }

Processes::Processes(const ProcessesOptions& options, const Clock& clock)
    : shell_(std::make_unique<Shell>(options, clock)) {}

Processes::~Processes() = default;

const run::ProcessPlace& Processes::place() const { return shell_->place(); }
void Processes::tell(const std::string& text) { shell_->tell(text); }
std::optional<std::string> Processes::hear() { return shell_->hear(); }
void Processes::ready() { shell_->ready(); }
void Processes::wait_until_ready() { shell_->wait_until_ready(); }
void Processes::done() { shell_->done(); }
void Processes::fail(const std::string& reason) { shell_->fail(reason); }

Transfer Processes::begin_sum(const at::Tensor& values) {
  return Transfer(std::make_unique<Transfer::State>(
      *shell_, values, [this](auto& bucket) { return shell_->backend().allreduce(bucket); }));
}

Transfer Processes::begin_sum_to(const at::Tensor& values, int64_t rank) {
  c10d::ReduceOptions options;
  options.rootRank = rank;
  return Transfer(std::make_unique<Transfer::State>(
      *shell_, values, [&](auto& bucket) { return shell_->backend().reduce(bucket, options); }));
}

Transfer Processes::begin_broadcast(const at::Tensor& values, int64_t rank) {
  c10d::BroadcastOptions options;
  options.rootRank = rank;
  return Transfer(std::make_unique<Transfer::State>(
      *shell_, values, [&](auto& bucket) { return shell_->backend().broadcast(bucket, options); }));
}

void Processes::sum(const at::Tensor& values) {
  begin_sum(values).wait();
  shell_->all_have_heard();
}

void Processes::broadcast(const at::Tensor& values) { begin_broadcast(values, 0).wait(); }

void Processes::share_parts(const at::Tensor& values_P, const Parts& parts) {
  std::vector<Transfer> transfers;
  for (const auto& [rank, span] : parts.owners({0, parts.size()})) {
    transfers.push_back(begin_broadcast(values_P.slice(0, span.first, span.second), rank));
  }
  for (Transfer& transfer : transfers) transfer.wait();
}

void Processes::gather_parts(const at::Tensor& part, const at::Tensor& values_P,
                             const Parts& parts) {
  move_parts(part, values_P, parts, /*to_leader=*/true);
}

void Processes::scatter_parts(const at::Tensor& values_P, const at::Tensor& part,
                              const Parts& parts) {
  move_parts(part, values_P, parts, /*to_leader=*/false);
}

/// A piece of each part at a time, all of one length, as backends want it. (What goes from one
/// process to another alone can only be waited for without looking who is still there.)
void Processes::move_parts(const at::Tensor& part, const at::Tensor& values_P, const Parts& parts,
                           bool to_leader) {
  const at::NoGradGuard no_grad;
  int64_t longest = 0;
  for (const auto& [owner, span] : parts.owners({0, parts.size()})) {
    longest = std::max(longest, span.second - span.first);
  }
  const int64_t most = std::max<int64_t>(1, kBucketBytes / part.element_size() / size());
  const auto buffer = [&] {
    return at::zeros({std::min(most, longest)}, part.options().device(at::kCPU));
  };
  std::vector<at::Tensor> own{buffer()};
  std::vector<std::vector<at::Tensor>> all;
  if (place().leads()) {
    all.emplace_back();
    for (int64_t rank = 0; rank < size(); ++rank) all[0].push_back(buffer());
  }
  const auto copy = [](const at::Tensor& from, const at::Tensor& to) {
    const int64_t size = std::min(from.numel(), to.numel());
    to.slice(0, 0, size).copy_(from.slice(0, 0, size));
  };
  for (int64_t begin = 0; begin < longest; begin += most) {
    const at::Tensor own_piece =
        part.slice(0, std::min(begin, part.numel()), std::min(begin + most, part.numel()));
    // Between process 0's values and what comes from, or goes to, each.
    const auto each_piece = [&](const auto& move) {
      for (size_t rank = 0; rank < all[0].size(); ++rank) {
        const Span whole = parts.of(static_cast<int64_t>(rank));
        const at::Tensor piece = values_P.slice(0, std::min(whole.first + begin, whole.second),
                                                std::min(whole.first + begin + most, whole.second));
        move(piece, all[0][rank]);
        model::let_rest(piece);
      }
    };
    if (to_leader) {
      copy(own_piece, own[0]);
    } else if (place().leads()) {
      each_piece([&](const at::Tensor& piece, const at::Tensor& sent) { copy(piece, sent); });
    }
    shell_->await(shell_->begun([&](std::vector<Work>& works) {
      works.push_back(to_leader ? shell_->backend().gather(all, own)
                                : shell_->backend().scatter(own, all));
    }));
    if (!to_leader) {
      copy(own[0], own_piece);
    } else if (place().leads()) {
      each_piece([&](const at::Tensor& piece, const at::Tensor& came) { copy(came, piece); });
    }
  }
  if (to_leader && longest > 0) shell_->all_have_heard();
}

}  // namespace atl::group
