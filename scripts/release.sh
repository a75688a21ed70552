#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Makes the files of a release: the wheel, the chart, the symbols of the programs, the list of what
they contain (SBOM), the licences of that, and SHA256SUMS over all files. The same commit, build and
machine give the same bytes. docs/releases.md describes the files.

usage: scripts/release.sh [--build FOLDER] [--image] [--help] FOLDER

  --build FOLDER  take the library and the programs of this build folder instead of compiling them
  --image         also make the container image, as an OCI archive, and its list, licences and
                  symbols. Its programs are compiled in build/image, in a root of Debian sid
                  (scripts/in-sid.sh) and with the gRPC there. Needs root, and Debian's archive
  FOLDER          the folder for the files; it must be empty or not exist

The times in the files are SOURCE_DATE_EPOCH, or the time of the commit.

examples:
  scripts/release.sh /tmp/basin-0.1.0
  scripts/release.sh --build build/release --image /tmp/basin-0.1.0
  (cd /tmp/basin-0.1.0 && sha256sum --check SHA256SUMS)
HELP
}

fail() {
  echo "release: $*" >&2
  exit 1
}

build=
image=false
folder=
while (($#)); do
  case "$1" in
    --build)
      [[ -d "${2-}" ]] || {
        echo "release: --build needs an existing folder" >&2
        exit 2
      }
      build="$(realpath "$2")"
      shift
      ;;
    --image) image=true ;;
    --help | -h)
      usage
      exit 0
      ;;
    -*)
      echo "release: unknown argument: $1 (see --help)" >&2
      exit 2
      ;;
    *) folder="$1" ;;
  esac
  shift
done
[[ -n "$folder" ]] || {
  echo "release: name the folder for the files (see --help)" >&2
  exit 2
}

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly root
readonly python="$root/.venv/bin/python3" helm="$root/.cache/tools/bin/helm-4"
folder="$(realpath -m "$folder")"

# Nothing of the caller's settings is in the files.
umask 022
export LC_ALL=C TZ=UTC
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}"
[[ "$SOURCE_DATE_EPOCH" =~ ^[0-9]+$ ]] || fail "SOURCE_DATE_EPOCH is not a number of seconds"
version="$(sed -n 's/^project(Basin VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")"
readonly version

[[ -x "$helm" ]] || fail "there is no $helm. Run scripts/setup.sh."
[[ ! -e "$folder" || -z "$(ls -A "$folder")" ]] || fail "$folder is not empty. Name another folder."
[[ -z "$(git -C "$root" status --porcelain)" ]] ||
  echo "release: the tree has changes that are in no commit; they are in the release" >&2
if "$image"; then
  for tool in buildah mmdebstrap; do
    command -v "$tool" >/dev/null || fail "--image needs $tool. Run scripts/setup.sh."
  done
  (($(id -u) == 0)) || fail "--image needs root, because it makes the base of the image."
  "$root/scripts/in-sid.sh" true || fail "--image needs a root of Debian sid."
fi

readonly image_build="$root/build/image"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$folder"

# A tar file of a folder that depends only on names, modes and contents.
tar_of() { # parent folder...
  tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    --format=gnu --directory="$1" "${@:2}"
}

make_programs() {
  build="$root/build/distribution"
  export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$root}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"
  # Without the runtime of CUDA, which has a licence of its own.
  cmake -S "$root" --preset release -B "$build" -DBASIN_BUILD_TESTS=OFF -DBASIN_CUDA_RUNTIME=LOADED
  cmake --build "$build" --target basind basinctl basin_c
}

make_chart() {
  # The chart refuses to guess between certificates and none.
  "$helm" lint --quiet --set config.grpc.insecure=true "$root/helm/basin"
  "$helm" package --destination "$scratch" "$root/helm/basin" >/dev/null
  # Again, because Helm writes the time into its archive.
  mkdir "$scratch/chart"
  tar -xzf "$scratch/basin-$version.tgz" -C "$scratch/chart" ||
    fail "helm/basin/Chart.yaml has another version than CMakeLists.txt ($version)"
  tar_of "$scratch/chart" basin | gzip -n >"$folder/basin-$version.tgz"
}

readonly programs=(aggregator/basind/basind aggregator/ctl/basinctl)

# The programs of the wheel and of the image are stripped, so the stacks in a log are only places.
make_symbols() { # build-folder archive
  local program
  rm -rf "$scratch/symbols"
  mkdir "$scratch/symbols"
  for program in "${programs[@]}"; do
    objcopy --only-keep-debug "$1/$program" "$scratch/symbols/${program##*/}.debug"
  done
  chmod 644 "$scratch"/symbols/*
  tar_of "$scratch" symbols | gzip -n >"$folder/$2"
}

# An image of Debian's packages, extracted; it writes their versions to $scratch/NAME.packages. It
# works like tests/helm/image.py: without an engine or a registry, in a separate store.
make_base() { # name packages
  local container hook
  # shellcheck disable=SC2016  # expanded by mmdebstrap's shell and by dpkg-deb
  hook='for deb in "$1"/var/cache/apt/archives/*.deb; do
    dpkg-deb --show --showformat="\${Package} \${Version} \${Architecture}\n" "$deb"; done'
  # As in scripts/in-sid.sh.
  mmdebstrap --quiet --aptopt='Acquire::Check-Valid-Until "false"' \
    --variant=extract --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --include="$2" --extract-hook="{ $hook; } >'$scratch/$1.packages'" sid "$scratch/$1.tar"
  container="$(in_store from scratch)"
  in_store add --quiet "$container" "$scratch/$1.tar" / >/dev/null
  in_store commit --quiet --rm --timestamp "$SOURCE_DATE_EPOCH" "$container" "$1" >/dev/null
  rm "$scratch/$1.tar"
}

in_store() { # buildah-argument...
  # This storage driver also works inside containers.
  buildah --storage-driver=vfs --root="$scratch/store" --runroot="$scratch/run" "$@"
}

# No CUDA: its compiler is not in the root.
make_image_programs() {
  "$root/scripts/in-sid.sh" cmake --preset release -B "$image_build" -DBASIN_BUILD_TESTS=OFF \
    -DBASIN_CUDA=OFF
  "$root/scripts/in-sid.sh" cmake --build "$image_build" --target basind basinctl
}

make_image() {
  local made="$image_build/release"
  make_image_programs
  make_base shell libc6,dash,coreutils
  make_base runtime libc6,base-files,netbase,tzdata
  rm -rf "$made"
  mkdir "$made"
  "$root/scripts/in-sid.sh" scripts/image-root.sh "$made/image-root" \
    "${programs[@]/#/$image_build/}"
  in_store bud --quiet --isolation=chroot --timestamp "$SOURCE_DATE_EPOCH" --tag=basin \
    --build-arg=BUILD_BASE=localhost/shell --build-arg=BASE=localhost/runtime \
    --build-arg=PREBUILT=image-root --file="$root/Dockerfile" "$made" >/dev/null
  in_store push --quiet basin "oci:$scratch/oci:basin:$version"
  tar_of "$scratch/oci" blobs index.json oci-layout >"$folder/basin-image-$version-$(uname -m).tar"
  make_symbols "$image_build" "basin-image-$version-symbols-$(uname -m).tar.gz"
  cp "$scratch/runtime.packages" "$made"
  "$root/scripts/in-sid.sh" env SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" scripts/make-sbom.py \
    --build "$image_build" --programs --image-packages "$made/runtime.packages" \
    --licenses "$made/licenses" "$made/sbom.json"
  cp "$made/sbom.json" "$folder/basin-image-$version.spdx.json"
  tar_of "$made" licenses | gzip -n >"$folder/LICENSES-image.tar.gz"
}

[[ -n "$build" ]] || make_programs
"$root/scripts/build-wheel.sh" --build "$build" "$folder"
make_chart
make_symbols "$build" "basin-$version-symbols-$(uname -m).tar.gz"
about=(--build "$build" --wheel "$(echo "$folder"/*.whl)" --licenses "$scratch/licenses")
if "$image"; then make_image; fi
"$python" "$root/scripts/make-sbom.py" "${about[@]}" "$folder/basin-$version.spdx.json"
tar_of "$scratch" licenses | gzip -n >"$folder/LICENSES.tar.gz"
(cd "$folder" && sha256sum -- * >"$scratch/SHA256SUMS" && mv "$scratch/SHA256SUMS" .)
echo "release: $folder has"
sed 's/^/  /' "$folder/SHA256SUMS"
