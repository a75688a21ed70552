// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Runs every scenario of the folder and compares its output with that in its file. There is one
// test per file; a file's header "# fault: W2" becomes part of its name.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/scenarios/commands.h"
#include "tests/scenarios/script.h"

namespace basin::scenarios {
namespace {

namespace fs = std::filesystem;

struct Flags {
  bool rewrite = false;
  std::string folder = BASIN_SCENARIO_FOLDER;
};

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// One scenario, and its world.
class ScenarioTest : public ::testing::Test {
 public:
  ScenarioTest(fs::path path, bool rewrite) : path_(std::move(path)), rewrite_(rewrite) {}

  void TestBody() override {
    Script script = ParseScript(ReadFile(path_));
    ASSERT_EQ(script.error, "") << path_.filename();
    World world;
    for (ScriptCommand& command : script.commands) {
      std::string error;
      const std::string output = RunCommand(world, command.text, error);
      const std::string where =
          absl::StrCat(path_.filename().string(), ":", command.line, ": ", command.text);
      EXPECT_EQ(error, "") << where;
      if (!rewrite_) {
        ASSERT_EQ(command.output, output) << where;
      }
      command.output = output;
    }
    EXPECT_FALSE(world.violated()) << path_.filename() << " prints a line that starts with !!";
    if (rewrite_) std::ofstream(path_, std::ios::binary) << FormatScript(script);
  }

 private:
  const fs::path path_;
  const bool rewrite_;
};

// "loss_after_effective.txt" with the header "# fault: W2" becomes Fault_W2_loss_after_effective.
std::string TestName(const fs::path& path) {
  std::string name = path.stem().string();
  const std::vector<std::string> faults = ParseScript(ReadFile(path)).faults;
  if (faults.empty()) return name;
  return absl::StrCat("Fault_", absl::StrJoin(faults, "_Fault_"), "_", name);
}

// A file with a wrong name would be a scenario that never runs.
class FolderTest : public ::testing::Test {
 public:
  explicit FolderTest(std::vector<std::string> strangers) : strangers_(std::move(strangers)) {}
  void TestBody() override {
    EXPECT_TRUE(strangers_.empty()) << "not scenarios: " << absl::StrJoin(strangers_, ", ");
  }

 private:
  const std::vector<std::string> strangers_;
};

void RegisterTests(const Flags& flags) {
  std::vector<fs::path> paths;
  std::vector<std::string> strangers;
  for (const fs::directory_entry& entry : fs::directory_iterator(flags.folder)) {
    if (entry.path().extension() == ".txt") {
      paths.push_back(entry.path());
    } else {
      strangers.push_back(entry.path().filename().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    ::testing::RegisterTest("Scenario", TestName(path).c_str(), nullptr, nullptr, __FILE__,
                            __LINE__, [path, rewrite = flags.rewrite]() -> ScenarioTest* {
                              return new ScenarioTest(path, rewrite);
                            });
  }
  if (paths.empty()) strangers.push_back("there is no scenario in the folder");
  ::testing::RegisterTest("Folder", "HoldsOnlyScenarios", nullptr, nullptr, __FILE__, __LINE__,
                          [strangers]() -> FolderTest* { return new FolderTest(strangers); });
}

void PrintHelp() {
  std::cout << "Runs the scenarios of tests/scenarios/testdata and compares their output.\n\n"
               "  --rewrite      write the outputs into the files instead (or BASIN_REWRITE=1);\n"
               "                 the diff is the review\n"
               "  --folder=PATH  the scenarios of another folder\n"
               "  --gtest_...    as usual; --gtest_filter=*name* chooses\n\n"
               "A scenario is a text of commands, each followed by ---- and what it prints:\n\n";
  for (const Command& command : AllCommands()) {
    std::cout << "  " << command.verb << " " << command.usage << "\n      " << command.help << "\n";
  }
}

}  // namespace
}  // namespace basin::scenarios

int main(int argc, char** argv) {
  basin::scenarios::Flags flags;
  const char* rewrite = std::getenv("BASIN_REWRITE");
  flags.rewrite = rewrite != nullptr && std::string_view(rewrite) == "1";
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--help") {
      basin::scenarios::PrintHelp();
      return 0;
    }
    if (argument == "--rewrite") {
      flags.rewrite = true;
    } else if (absl::ConsumePrefix(&argument, "--folder=")) {
      flags.folder = std::string(argument);
    } else if (!absl::StartsWith(argument, "--gtest_")) {
      std::cerr << "Unknown argument " << argument << "; --help lists them.\n";
      return 2;
    }
  }
  basin::scenarios::RegisterTests(flags);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
