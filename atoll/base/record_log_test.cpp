#include "atoll/base/record_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "atoll/base/file.h"
#include "atoll/testing/temporary_folder.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Bytes record(const std::string& text) {
  const auto bytes = as_byte_span(text);
  return {bytes.begin(), bytes.end()};
}

std::vector<Bytes> records(const std::vector<std::string>& texts) {
  std::vector<Bytes> out;
  for (const std::string& text : texts) out.push_back(record(text));
  return out;
}

class RecordLogTest : public testing::Test {
 protected:
  std::vector<Bytes> found() const { return RecordLog(path_).take_found(); }
  void write(const std::vector<std::string>& texts) const {
    RecordLog log(path_);
    for (const std::string& text : texts) log.append(record(text));
  }
  void overwrite(const std::string& contents) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << contents;
  }
  std::string refusal() const {
    return message_of([&] { const RecordLog log(path_); });
  }

  TestFolder folder_;
  fs::path path_ = folder_ / "log";
};

TEST_F(RecordLogTest, GivesBackWhatWasAppended) {
  EXPECT_TRUE(found().empty());
  write({"one", "", std::string(100'000, 'x')});
  write({"four"});
  EXPECT_EQ(found(), (records({"one", "", std::string(100'000, 'x'), "four"})));
}

TEST_F(RecordLogTest, TheFormatStays) {
  write({"ab"});
  const std::string bytes = read_file(path_);
  EXPECT_EQ(bytes.size(), 8U + 16U + 2U);
  EXPECT_EQ(bytes.substr(0, 16), std::string("ATOLLOG1\2\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(bytes.substr(24), "ab");
}

/// Wherever a writer dies, what append() had returned from is there, and the log goes on.
TEST_F(RecordLogTest, AWriterMayDieAtAnyByte) {
  write({"one", "two"});
  const std::string before = read_file(path_);
  write({"three"});
  const std::string after = read_file(path_);
  for (size_t size = before.size(); size < after.size(); ++size) {
    overwrite(after.substr(0, size));
    RecordLog log(path_);
    EXPECT_EQ(log.take_found(), (records({"one", "two"})));
    EXPECT_EQ(log.num_torn_bytes(), size - before.size());
    EXPECT_EQ(fs::file_size(path_), before.size());
    log.append(record("four"));
  }
  EXPECT_EQ(found(), (records({"one", "two", "four"})));
  overwrite(before + std::string(5000, '\0'));  // The file grew before its contents came.
  EXPECT_EQ(found().size(), 2U);
}

/// Nothing that was durable is dropped in silence.
TEST_F(RecordLogTest, DamageInTheMiddleIsRefused) {
  write({"one", "two", "three"});
  const std::string whole = read_file(path_);
  const size_t last = whole.size() - 16 - 5;
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    for (const int bit : {0, 7}) {
      std::string damaged = whole;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      overwrite(damaged);
      if (byte < last) {
        EXPECT_THAT(refusal(), HasSubstr(path_.string())) << byte;
      } else {  // As one that was torn.
        EXPECT_EQ(found(), (records({"one", "two"}))) << byte;
      }
    }
  }
}

TEST_F(RecordLogTest, OnlyOneProcessHasIt) {
  const RecordLog log(path_);
  EXPECT_THAT(refusal(), HasSubstr("in use by another process"));
}

TEST_F(RecordLogTest, IsReplacedAtOnce) {
  write({"one", "two", "three"});
  {
    RecordLog log(path_);
    log.replace(records({"sum"}));
    log.append(record("four"));
    EXPECT_EQ(log.size_bytes(), fs::file_size(path_));
  }
  EXPECT_EQ(found(), (records({"sum", "four"})));
}

TEST_F(RecordLogTest, AnotherFileIsLeftAlone) {
  overwrite("[run]\nname = \"x\"\n");
  EXPECT_THAT(refusal(), HasSubstr("no record log"));
  EXPECT_EQ(read_file(path_), "[run]\nname = \"x\"\n");
}

/// A disk that is full: in a process of its own, whose files may not grow.
TEST_F(RecordLogTest, AFullDiskIsSaidAndNothingHalfStays) {
  write({"one"});
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 60, .rlim_max = 60};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    RecordLog log(path_);
    try {
      log.append(record(std::string(1000, 'x')));
      ::_exit(1);
    } catch (const InputError& error) {
      ::_exit(std::string(error.what()).find(path_.string()) == std::string::npos ? 2 : 0);
    }
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  RecordLog log(path_);
  EXPECT_EQ(log.num_torn_bytes(), 0U);
  EXPECT_EQ(log.take_found(), records({"one"}));
}

}  // namespace
}  // namespace atl
