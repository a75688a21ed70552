#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'HELP'
Makes the programs of a cluster from Debian 12's packages: Kubernetes 1.20.2 is compiled from its
source package, which contains everything that it depends on; containerd, etcd and the network
plugins are unpacked. Nothing is installed. It takes several minutes of CPU time and 3 GB of disk,
of which 540 MB stay.

usage: tests/cluster/build-kubernetes.sh [--where] [--help]

  --where  only print the folder of the result

The result is in basin/kubernetes-1.20.2 in $XDG_CACHE_HOME, by default ~/.cache. If this script has
not changed since the result was made, nothing is done. It needs cc, and apt-get as Debian has it.

example:
  tests/cluster/build-kubernetes.sh
HELP
}

readonly VERSION=1.20.2
readonly GO=1.19
readonly folder="${XDG_CACHE_HOME:-$HOME/.cache}/basin/kubernetes-$VERSION"
self="$(realpath "${BASH_SOURCE[0]}")"
readonly self

case "${1-}" in
  --where)
    echo "$folder"
    exit 0
    ;;
  --help | -h)
    usage
    exit 0
    ;;
  '') ;;
  *)
    echo "build-kubernetes: unknown argument: $1 (see --help)" >&2
    exit 2
    ;;
esac

# What is compiled from the source package.
readonly COMPONENTS=(kube-apiserver kube-controller-manager kube-scheduler kubelet)
# Its client, and what a node needs beside it.
readonly UNPACKED=(kubernetes-client containerd etcd-server containernetworking-plugins)
readonly COMPILER=("golang-$GO-go" "golang-$GO-src")

mkdir -p "$(dirname "$folder")"
# Two runs at once would build twice.
exec {lock}>"$folder.lock"
flock "$lock"
cmp -s "$self" "$folder/made-by" && exit 0

work="$(mktemp -d "$folder.XXXXXX")"
readonly work
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{apt/lists/partial,apt/cache/archives/partial,result/bin}

# The machine's own sources of Debian, and their source packages, in lists of our own. As root, apt
# would download as a user that cannot write here.
# shellcheck disable=SC2016  # expanded by apt
apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
  'Created-By: Packages' 'Origin: Debian' | sed 'p; s/^deb /deb-src /' >"$work/apt/sources.list"
apt() {
  apt-get -qq -o APT::Sandbox::User=root \
    -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$work/apt/lists" -o Dir::Cache="$work/apt/cache" "$@"
}

fetch() {
  cd "$work"
  apt update
  apt source --download-only kubernetes
  apt download "${COMPILER[@]}" "${UNPACKED[@]}"
  local package
  for package in "${COMPILER[@]}"; do
    dpkg-deb --extract "$package"_*.deb "$work/go"
  done
  for package in "${UNPACKED[@]}"; do
    dpkg-deb --extract "$package"_*.deb "$work/unpacked"
  done
  mv "$work"/unpacked/usr/bin/* "$work/unpacked/usr/lib/cni" "$work/result/bin"
}

# The source package has no generated code for OpenAPI, without which the server does not compile.
# Its own makefile needs more tools than it uses here.
generate_openapi() {
  local header=vendor/k8s.io/code-generator/hack/boilerplate.go.txt packages
  go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  packages="$(
    grep -rlF --include='*.go' '+k8s:openapi-gen=' pkg vendor/k8s.io/*/ |
      grep -Ev '_test\.go$|/testdata/|/test/|/(sample-[a-z]+|code-generator|kube-openapi|gengo)/' |
      xargs -n 1 dirname | sort -u | sed 's|^|k8s.io/kubernetes/|' | paste -sd,
  )"
  "$work/openapi-gen" --input-dirs "$packages" --go-header-file "$header" \
    --output-package k8s.io/kubernetes/pkg/generated/openapi \
    --output-file-base zz_generated.openapi --report-filename "$work/openapi-violations"
}

compile() {
  local tree="$work/gopath/src/k8s.io/kubernetes" component package stamp=()
  mkdir -p "$tree"
  tar -xzf "$work"/kubernetes_*.orig.tar.gz -C "$tree" --strip-components=1
  cd "$tree"
  export GOROOT="$work/go/usr/lib/go-$GO" GOPATH="$work/gopath" GOCACHE="$work/gocache"
  export GO111MODULE=off CGO_ENABLED=0 GOFLAGS= PATH="$work/go/usr/lib/go-$GO/bin:$PATH"
  generate_openapi
  # Clients ask for the version.
  for package in component-base/version client-go/pkg/version; do
    package="k8s.io/kubernetes/vendor/k8s.io/$package"
    stamp+=("-X $package.gitVersion=v$VERSION" "-X $package.gitMajor=${VERSION%%.*}")
    stamp+=("-X $package.gitMinor=$(cut -d. -f2 <<<"$VERSION")")
  done
  for component in "${COMPONENTS[@]}"; do
    go build -ldflags "-s -w ${stamp[*]}" -o "$work/result/bin/" "./cmd/$component"
  done
  # The process that holds a pod's namespaces open.
  cc -Os -static -DVERSION="$VERSION" -o "$work/result/pause" build/pause/linux/pause.c
}

fetch
compile
cp "$self" "$work/result/made-by"
rm -rf "$folder"
mv "$work/result" "$folder"
echo "build-kubernetes: $folder, $(du -sh "$folder" | cut -f1)"
