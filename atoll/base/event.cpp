#include "atoll/base/event.h"

#include <nlohmann/json.hpp>

namespace atl {

std::string to_json(const Event& event, double time) {
  nlohmann::ordered_json object = {{"time", time}, {"kind", event.kind}};
  for (const auto& [name, value] : event.fields) {
    std::visit([&, &key = name](const auto& known) { object[key] = known; }, value);
  }
  object["sentence"] = event.sentence;
  // A reason may hold any bytes: what is no UTF-8 is replaced, not thrown at who tells of it.
  return object.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace atl
