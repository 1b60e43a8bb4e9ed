#pragma once
// What was measured once, in a file of the user: lines "what = answer", and a sum over them. All
// processes on a machine share it. An answer that is there is never replaced; a file that is
// damaged is put aside. It is replaced as a whole, so readers need no lock. One thread at a time.
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace atl::model {

using Answers = std::map<std::string, std::string, std::less<>>;

std::string memory_text(const Answers& answers);
/// Nothing, when it is no such text.
std::optional<Answers> parse_memory(std::string_view text);

class ProductMemory {
 public:
  /// Of a shape there is one of each number of threads, so that many are never needed.
  static constexpr size_t kMaxAnswers = 10'000;
  static constexpr size_t kMaxFileBytes = size_t{4} << 20;

  /// `path` and the folders that lead to it need not be there.
  explicit ProductMemory(std::filesystem::path path);

  /// What is remembered, else what `measure` says, which is remembered from then on; other
  /// processes that ask meanwhile wait, so that they neither disturb the measurement nor make their
  /// own. Nothing, without a measurement, where nothing can be remembered.
  std::optional<std::string> find_or_measure(const std::string& what,
                                             const std::function<std::string()>& measure);

 private:
  /// Aside only with the lock held: without it a good file may have come in between.
  enum class OnDamage { kIsIgnored, kPutsAside };
  void read(OnDamage on_damage);

  std::filesystem::path path_;
  Answers answers_;        // As they were last read.
  bool is_usable_ = true;  // Until it could not be read or written.
};

}  // namespace atl::model
