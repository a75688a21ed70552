// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/nccl/library.h"

#include <dlfcn.h>
#include <link.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin::accelerator::nccl {
namespace {

constexpr char kWayOut[] =
    "install the Python package nvidia-nccl-cu13 or the system's libnccl2, or set "
    "BASIN_NCCL_LIBRARY to the path of libnccl.so.2";

// Where the Python packages put the library, in their folder.
constexpr char kPathInPackages[] = "/nvidia/nccl/lib/libnccl.so.2";

// Why the linker did not load a library. Its text begins with the name of the file.
std::string LinkerError() {
  const char* const text = dlerror();
  return text == nullptr ? "unknown error of the dynamic linker" : text;
}

std::string PathOf(void* handle, const std::string& otherwise) {
  const link_map* map = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name != nullptr;
  return known && map->l_name[0] != '\0' ? map->l_name : otherwise;
}

// Sets a function of the table, or remembers the name of one that the library lacks.
template <typename Function>
void Find(void* handle, const char* name, Function* function, std::vector<std::string>* missing) {
  void* const found = dlsym(handle, name);
  if (found == nullptr) missing->push_back(name);
  *function = reinterpret_cast<Function>(found);
}

std::vector<std::string> FindAll(void* handle, Functions* functions) {
  std::vector<std::string> missing;
  Find(handle, "ncclGetVersion", &functions->GetVersion, &missing);
  Find(handle, "ncclGetErrorString", &functions->GetErrorString, &missing);
  Find(handle, "ncclGetLastError", &functions->GetLastError, &missing);
  Find(handle, "ncclGetUniqueId", &functions->GetUniqueId, &missing);
  Find(handle, "ncclCommInitRankConfig", &functions->CommInitRankConfig, &missing);
  Find(handle, "ncclCommFinalize", &functions->CommFinalize, &missing);
  Find(handle, "ncclCommDestroy", &functions->CommDestroy, &missing);
  Find(handle, "ncclCommAbort", &functions->CommAbort, &missing);
  Find(handle, "ncclCommGetAsyncError", &functions->CommGetAsyncError, &missing);
  Find(handle, "ncclGroupStart", &functions->GroupStart, &missing);
  Find(handle, "ncclGroupEnd", &functions->GroupEnd, &missing);
  Find(handle, "ncclSend", &functions->Send, &missing);
  Find(handle, "ncclRecv", &functions->Recv, &missing);
  Find(handle, "ncclReduce", &functions->Reduce, &missing);
  Find(handle, "ncclBroadcast", &functions->Broadcast, &missing);
  return missing;
}

// Opens the first library that can be loaded. Null: `errors` says why none of them could.
void* Open(const LibrarySearch& search, std::vector<std::string>* errors) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  const auto open = [errors](const std::string& path) {
    void* const handle = dlopen(path.c_str(), kFlags);
    if (handle == nullptr) errors->push_back(LinkerError());
    return handle;
  };
  if (!search.path.empty()) return open(search.path);
  if (void* const loaded = dlopen(search.name.c_str(), kFlags | RTLD_NOLOAD)) return loaded;
  if (void* const of_system = open(search.name)) return of_system;
  for (const std::string& folder : search.package_folders) {
    if (void* const of_package = open(folder + kPathInPackages)) return of_package;
  }
  return nullptr;
}

}  // namespace

std::string OwnPackageFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&OwnPackageFolder), &info) == 0) return "";
  std::string path = info.dli_fname == nullptr ? "" : info.dli_fname;
  for (int level = 0; level < 2; ++level) {
    const size_t end = path.rfind('/');
    if (end == std::string::npos) return "";
    path.resize(end);
  }
  return path;
}

std::string VersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusOr<std::shared_ptr<const Library>> Library::Load(const LibrarySearch& search) {
  std::vector<std::string> errors;
  void* const handle = Open(search, &errors);
  if (handle == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("NCCL could not be loaded (", absl::StrJoin(errors, "; "), "); ", kWayOut));
  }
  auto library = std::shared_ptr<Library>(new Library);
  library->path_ = PathOf(handle, search.path.empty() ? search.name : search.path);
  const std::vector<std::string> missing = FindAll(handle, &library->functions_);
  // An old library is reported by its version, whatever it lacks.
  const auto get_version = library->functions_.GetVersion;
  if (get_version != nullptr && get_version(&library->version_) != kSuccess) library->version_ = 0;
  if (library->version_ > 0 && library->version_ < kLeastVersion) {
    // Before 2.9 a version was written with one digit for its minor part.
    const int version = library->version_;
    const std::string text =
        version < 10000 ? absl::StrCat(version / 1000, ".", version / 100 % 10, ".", version % 100)
                        : VersionText(version);
    return absl::FailedPreconditionError(absl::StrCat("NCCL is too old: ", library->path_, " is ",
                                                      text, ", and ", VersionText(kLeastVersion),
                                                      " or later is needed; ", kWayOut));
  }
  if (!missing.empty() || library->version_ == 0) {
    const std::string lacks =
        missing.empty() ? "does not report its version" : "lacks " + absl::StrJoin(missing, ", ");
    return absl::FailedPreconditionError(
        absl::StrCat(library->path_, " is not NCCL: it ", lacks, "; ", kWayOut));
  }
  return std::shared_ptr<const Library>(std::move(library));
}

std::string Library::Describe(const char* call, Code code) const {
  std::string text = absl::StrCat(call, " failed: ", functions_.GetErrorString(code));
  const char* const last = functions_.GetLastError(nullptr);
  if (last != nullptr && *last != '\0') absl::StrAppend(&text, " (", last, ")");
  return text;
}

}  // namespace basin::accelerator::nccl
