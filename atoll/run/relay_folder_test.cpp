#include "atoll/run/relay_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/run/registration.h"
#include "atoll/run/run_authority.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::run {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

struct RelayFolderTest : testing::Test {
  /// A run, and its fingerprint.
  std::string create(const std::string& name) {
    return create_authority(folder / name, name).fingerprint();
  }
  void join(const std::string& name, const std::string& fingerprint) {
    enrol(folder / name, membership_of(relay, fingerprint), "meeting");
  }

  TestFolder folder;
  fs::path relay = folder / "relay";
};

TEST_F(RelayFolderTest, TheFirstRunHasTheFolderItselfAndOthersFoldersTherein) {
  EXPECT_THAT(memberships_in(relay), IsEmpty());
  const std::string ours = create("ours");
  const std::string theirs = create("theirs");
  join("ours", ours);
  join("theirs", theirs);
  EXPECT_THAT(memberships_in(relay), ElementsAre(relay, relay / theirs.substr(0, 16)));
  EXPECT_EQ(certified_peer(relay).run, ours);
  EXPECT_EQ(certified_peer(relay / short_run(theirs)).run, theirs);
}

TEST_F(RelayFolderTest, ARunIsFoundWhereItLies) {
  const std::string ours = create("ours");
  const std::string theirs = create("theirs");
  join("theirs", theirs);
  join("ours", ours);
  join("theirs", theirs);
  EXPECT_EQ(memberships_in(relay).size(), 2U);
  EXPECT_EQ(membership_of(relay, theirs), relay);
  EXPECT_EQ(membership_of(relay, ours), relay / short_run(ours));
  // Without its first membership it has the other.
  fs::remove_all(relay / "identity");
  EXPECT_THAT(memberships_in(relay), ElementsAre(relay / short_run(ours)));
}

}  // namespace
}  // namespace atl::run
