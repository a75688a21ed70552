// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/nccl/library.h"

#include <dlfcn.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accelerator/node/nccl/stand_in_nccl.h"

namespace basin::accelerator::nccl {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// A machine without NCCL: no library has this name.
LibrarySearch Nowhere() {
  LibrarySearch search;
  search.name = "libnccl-that-no-machine-has.so.2";
  return search;
}

LibrarySearch Only(const std::string& path) {
  LibrarySearch search = Nowhere();
  search.path = path;
  return search;
}

const StandInControl* Control() {
  void* const handle = dlopen(STAND_IN_NCCL, RTLD_NOW);
  EXPECT_NE(handle, nullptr) << dlerror();
  using Get = const StandInControl* (*)();
  return reinterpret_cast<Get>(dlsym(handle, "standInNcclControl"))();
}

TEST(NcclLibraryTest, Item3_LoadsFromTheGivenPath) {
  const auto library = Library::Load(Only(STAND_IN_NCCL));
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ((*library)->version(), 23203);
  EXPECT_EQ((*library)->path(), STAND_IN_NCCL);
  EXPECT_EQ((*library)->Describe("ncclSend", kRemoteError),
            "ncclSend failed: remote process exited or there was a network error (stand-in)");
}

TEST(NcclLibraryTest, Item3_LoadsFromAPythonPackage) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "site-packages";
  std::filesystem::create_directories(root / "nvidia/nccl/lib");
  std::filesystem::copy_file(STAND_IN_NCCL, root / "nvidia/nccl/lib/libnccl.so.2",
                             std::filesystem::copy_options::overwrite_existing);
  LibrarySearch search = Nowhere();
  search.package_folders = {testing::TempDir() + "/empty", root.string()};
  const auto library = Library::Load(search);
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_THAT((*library)->path(), EndsWith("site-packages/nvidia/nccl/lib/libnccl.so.2"));
  std::filesystem::remove_all(root);
}

TEST(NcclLibraryTest, Item3_MissingNamesEveryPlaceAndTheWayOut) {
  LibrarySearch search = Nowhere();
  search.package_folders = {"/nowhere/site-packages"};
  const absl::Status status = Library::Load(search).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("libnccl-that-no-machine-has.so.2"),
                    HasSubstr("/nowhere/site-packages/nvidia/nccl/lib/libnccl.so.2"),
                    HasSubstr("install the Python package nvidia-nccl-cu13"),
                    HasSubstr("BASIN_NCCL_LIBRARY")));
}

TEST(NcclLibraryTest, Item3_AGivenPathIsTheOnlyOne) {
  LibrarySearch search = Only("/nowhere/libnccl.so.2");
  search.package_folders = {"/elsewhere"};
  const absl::Status status = Library::Load(search).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/libnccl.so.2"));
  EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("/elsewhere")));
}

TEST(NcclLibraryTest, Item3_TooOldNamesBothVersions) {
  const StandInControl* const control = Control();
  for (const auto& [version, text] : {std::pair{21805, "2.18.5"}, std::pair{2708, "2.7.8"}}) {
    control->set_version(version);
    const absl::Status status = Library::Load(Only(STAND_IN_NCCL)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(std::string("is ") + text + ", and 2.19.1 or later is needed"),
                      HasSubstr("nvidia-nccl-cu13")));
  }
  control->reset();
}

TEST(NcclLibraryTest, Item3_AnotherLibraryIsNotNccl) {
  const absl::Status status = Library::Load(Only(NO_NCCL)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("is not NCCL: it lacks ncclGetErrorString, "), HasSubstr("ncclBroadcast")));
}

TEST(NcclLibraryTest, FindsTheFolderOfItsOwnPackage) {
  // The test is a program, so this is the parent of its folder.
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_TRUE(std::filesystem::equivalent(OwnPackageFolder(), program.parent_path().parent_path()))
      << OwnPackageFolder();
}

}  // namespace
}  // namespace basin::accelerator::nccl
