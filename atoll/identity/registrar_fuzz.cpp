// A registrar that is asked with any bytes, and with JSON whose parts are any bytes.
#include <cstdint>
#include <filesystem>
#include <string>

#include "atoll/base/check.h"
#include "atoll/identity/registrar.h"
#include "atoll/testing/temporary_folder.h"

namespace {

using namespace std::chrono_literals;
using atl::identity::Registrar;

struct World {
  atl::TestFolder folder;
  atl::identity::WallTime now = atl::identity::wall_time_of(1'800'000'000);
  atl::identity::Authority authority = atl::identity::Authority::create("run", now);
  atl::identity::InviteBook book{folder / "invites.json"};
  std::string request = atl::identity::Key::generate().request();
  Registrar registrar{authority, book, Registrar::Options{}, [](const atl::Event& event) {
                        for (const char c : event.sentence) ATOLL_CHECK(c >= 0x20 && c < 0x7F);
                      }};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string half = text.substr(size / 2);
  const auto ask = [&](const std::string& bytes) {
    world.now += 10s;  // No guess is held back.
    const auto reply =
        atl::identity::decode_reply(world.registrar.answer(bytes, {.address = half}, world.now));
    ATOLL_CHECK(!reply);  // Nobody was invited.
  };
  (void)atl::identity::decode_reply(text);
  ask(text);
  ask(encode(atl::identity::RegistrationRequest{text.substr(0, size / 2), half, world.request}));
  ask(encode(atl::identity::RegistrationRequest{"aaaaaaaaaaaaaaaaaaaa", half, text}));
  return 0;
}
